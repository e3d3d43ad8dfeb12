"""What a stranger may do to a corpus or a campaign: one mutation at a time, drawn from a seed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from attnfuzz.generators.model.codec import dump_yaml, load_yaml_safely

CANARY = "CANARY"
"""The file that foreign code would make."""
CALL = f'__import__("pathlib").Path("{CANARY}").touch()'
SECRET = "what-lies-outside"
"""The text of the file outside that links lead to."""

FIELDS = (
    "program.yaml", "failure.yaml", "environment.yaml", "bucket.yaml", "confirmations.yaml",
    "variants.yaml",
)  # fmt: skip
TEXTS = ("repro.py", "preload/fault.py", *FIELDS)


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"and": [value]}
    return value


SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 255, 4097, 2**31, 2**63, -(2**63) - 1, 10**39, 10**60, 10**400,
    10**4200, 0.0, -0.0, 0.5, 1e-320, 1e308, float("nan"), float("inf"), float("-inf"),
    "", " ", "\n", "\t", "0", "1.5", "nan", "null", "yes", "2026-01-01", "é", "中", "x" * 300,
    "y" * 5000, "z" * 200_000, " " * 20_000, "s0*" * 7000, "`" * 50, "|" * 20, "(" * 3000,
)  # fmt: skip
STRINGS = (
    "\x1b[2J\x1b]0;owned\x07", "\x9b31m", "a\bb\rc", "\u202egnp.exe", "\u2066x\u2069", "a\x00b",
    "\ud800", "\ufeffx", "\u2028", "[bold red]x[/bold red]", "[/]", "[link=file:///etc/passwd]x",
    ":smile:", "{{ 7 * 7 }}", "{% raw %}", "{0.__class__}", "%s%n", "```\n# heading\n```",
    '<img src=x onerror="alert(1)">', "</code></pre><script>x</script>", "| a | b |", "@everyone",
    "[x](javascript:alert(1))", "../../outside/secret", "/etc/passwd", "~/.ssh/id_rsa", "..", ".",
    "-rf", "--json", "a/b", "a\\b", "CON", "*", "?", "[a-z]", "$(touch CANARY)", "`touch CANARY`",
    "; touch CANARY", "class", "None", "print", "__import__", "lambda", "os", "builtins:range",
    "class:def", "a..b:f", "m:None", "pathlib:Path", "it's", 'say "x"', "\\", "\\'", '"""', "'''",
    "\\N{DASH}", "{", "}", "#", "a\nb", "a\r\nb", f"' + {CALL} + '", f'" + str({CALL}) + "',
    f"\n{CALL}\n", f'"""\n{CALL}\n"""', f"\\' + {CALL} #", f"{{{CALL}}}", f"x]; {CALL}; [",
    f"x), {CALL}, (", "(a+)+$", "cpu", "cuda", "virtual-sm90", "npu", "unknown-target", "flex",
    "inductor", "crash", "hang", "out", "wrong_result", "0123456789ab", "ffffffff", "done", "new",
)  # fmt: skip
KEYS = ("x", "kind", "notes", "", "a b", "__class__", "\x1b[1m", "it's", CALL, "0", "preload")


def value(random: Random) -> Any:
    """Something that nobody meant to be there."""
    sort = random.random()
    if sort < 0.35:
        return random.choice(SCALARS)
    if sort < 0.8:
        return random.choice(STRINGS)
    if sort < 0.9:
        return [value(random) for _ in range(random.choice((0, 1, 2, 3)))]
    if sort < 0.98:
        count = random.choice((0, 1, 2))
        return {random.choice((*KEYS, *STRINGS)): value(random) for _ in range(count)}
    return nested(random.choice((3, 20, 70, 300)))


def mutated(data: Any, random: Random) -> Any:
    """`data` with one thing in it changed, taken away, added, or doubled."""
    places = list(_places(data, ()))
    path = random.choice(places)
    if not path:
        return value(random)
    at = data
    for step in path[:-1]:
        at = at[step]
    action, last = random.random(), path[-1]
    if action < 0.7:
        at[last] = value(random)
    elif action < 0.8:
        del at[last]
    elif isinstance(at, list):
        at.extend([at[last]] * random.choice((1, 2, 2000)))
    elif action < 0.9:
        at[random.choice(KEYS)] = value(random)
    else:
        at[random.choice((*KEYS, *STRINGS))] = at.pop(last)
    return data


def _places(data: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(data, dict):
        for key in data:
            yield from _places(data[key], (*path, key))
    elif isinstance(data, list):
        for place in range(min(len(data), 3)):
            yield from _places(data[place], (*path, place))


def written(data: Any, random: Random) -> str:
    """As JSON, which is YAML, or as YAML."""
    if random.random() < 0.5:
        with contextlib.suppress(Exception):  # what we cannot write ourselves goes as JSON
            return dump_yaml(data)
    return json.dumps(data)


def change_field(file: Path, random: Random) -> None:
    data = load_yaml_safely(file.read_text())
    for _ in range(random.choice((1, 1, 1, 2))):
        data = mutated(data, random)
    file.write_text(written(data, random), encoding="utf-8", errors="surrogatepass")


def change_bytes(file: Path, random: Random) -> None:
    raw = bytearray(file.read_bytes())
    for _ in range(random.choice((1, 1, 2, 10))):
        at, action = random.randrange(len(raw) + 1), random.random()
        if action < 0.3:
            raw[at : at + 1] = bytes([random.randrange(256)])
        elif action < 0.5:
            raw[at:at] = random.choice((b"\0", b"\xff\xfe", b"'", b'"', b"\x1b[31m", b"&a ", b"*a"))
        elif action < 0.7:
            del raw[at : at + random.choice((1, 10, 1000))]
        elif action < 0.9:
            raw[at:at] = random.choice(STRINGS).encode("utf-8", "surrogatepass")
        else:
            raw[at:at] = raw[: random.choice((1, 100, 5000))]
    file.write_bytes(bytes(raw))


def change_encoding(file: Path, random: Random) -> None:
    text = file.read_text()
    how = random.randrange(8)
    if how < 3:
        file.write_bytes(text.encode(("utf-16", "utf-32", "utf-7")[how]))
    elif how == 3:
        file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    elif how == 4:
        file.write_bytes((text + "# é\n").encode("latin-1", "replace"))
    elif how == 5:
        file.write_text(text.replace("\n", "\r\n"))
    elif how == 6:
        file.write_text(text.replace("\n", "\r"), newline="")
    else:
        file.write_text(text.replace("a", "\u202ea", 1) + "\x00" * random.choice((0, 1)))


def change_size(file: Path, random: Random) -> None:
    how = random.randrange(6)
    text = file.read_text()
    if how == 0:
        file.write_text("")
    elif how == 1:
        file.write_text(text + "\n" * 1_000_000)
    elif how == 2:
        os.truncate(file, 1 << 33)  # sparse: 8 GB
    elif how == 3:
        file.write_text(text + "".join(f"k{n}: {n}\n" for n in range(5000)))
    elif how == 4:
        file.write_text("- " * random.choice((60, 3000)) + "x")
    else:
        for n in range(500):
            (file.parent / f"more-{n}").mkdir()


def make_link(file: Path, random: Random) -> None:
    outside = next(path for one in file.parents if (path := one / "outside").is_dir())
    target = random.choice((file, file.parent, file.parent.parent))
    moved = outside / f"moved-{random.randrange(10**9)}"
    how = random.randrange(7)
    if how == 0:
        os.rename(target, moved)
        target.symlink_to(moved)
    elif how == 6:
        os.rename(file, moved)
        os.link(moved, file)
        return
    else:
        os.rename(target, moved)
        to = (outside / "secret", outside, target, "/dev/zero", "/nowhere/at/all")[how - 1]
        target.symlink_to(to)
    if random.random() < 0.2:
        with contextlib.suppress(OSError):  # where the folder has become a link
            (file.parents[1] / "more").symlink_to(outside)


def make_device(file: Path, random: Random) -> None:
    how = random.randrange(5)
    file.unlink()
    if how == 0:
        os.mkfifo(file)
    elif how == 1:
        with socket.socket(socket.AF_UNIX) as made, contextlib.suppress(OSError):
            made.bind(str(file))  # a path may be too long for one
    elif how == 2:
        file.mkdir()
    elif how == 3:
        file.symlink_to(random.choice(("/dev/zero", "/dev/tty", "/dev/stdin", "/proc/self/mem")))
    else:
        folder = file.parent
        for one in folder.iterdir():
            if one.is_file():
                one.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
            os.mkfifo(folder)


def change_mode(file: Path, random: Random) -> None:
    random.choice((file, file.parent)).chmod(random.choice((0, 0o200, 0o444, 0o111)))


def change_name(file: Path, random: Random) -> None:
    name = random.choice(
        ("\x1b[31mx", "a\nb", "..x", "-rf", "x" * 255, "\u202ex", "[bold]", "a b", "?", "é", "a%s")
    )
    target = random.choice((file, file.parent, file.parent.parent))
    raw = os.fsencode(target.parent) + b"/" + random.choice((name.encode(), b"\xff\xfe", b"'"))
    os.rename(target, raw)
    if random.random() < 0.3:
        target.mkdir()


def remove(file: Path, random: Random) -> None:
    file.unlink()


TABLES = ("campaign", "environments", "shards", "counts", "buckets", "failures", "variants")
BLOBS = (b"", b"\xff\xfe\x00", b"x" * 1000)


def change_cell(database: Path, random: Random) -> None:
    with contextlib.closing(sqlite3.connect(database)) as opened:
        table = random.choice((*TABLES, "failures", "failures", "buckets"))
        columns = [row[1] for row in opened.execute(f"PRAGMA table_info({table})")]
        column = random.choice(columns)
        row, cell = random.choice(
            opened.execute(f'SELECT rowid, "{column}" FROM {table}').fetchall()
        )
        text = _cell(cell, random)
        opened.execute("PRAGMA ignore_check_constraints=ON")
        with contextlib.suppress(sqlite3.Error):
            opened.execute(f'UPDATE {table} SET "{column}"=? WHERE rowid=?', (text, row))
        opened.commit()


def _cell(cell: Any, random: Random) -> Any:
    if isinstance(cell, str) and cell[:1] in "{[" and random.random() < 0.75:
        return json.dumps(mutated(json.loads(cell), random))
    new = random.choice((value(random), value(random), random.choice(BLOBS), "{}", "[", "nul"))
    if isinstance(new, int) and abs(new) >= 2**63:
        return str(new)
    if isinstance(new, str):
        return new.encode("utf-8", "replace").decode()
    return new if isinstance(new, int | float | bytes | None) else json.dumps(new)


def change_database_bytes(database: Path, random: Random) -> None:
    raw = bytearray(database.read_bytes())
    how = random.random()
    if how < 0.1:
        raw = raw[: random.choice((0, 1, 100, 4096, len(raw) // 2))]
    else:
        for _ in range(random.choice((1, 3, 30, 300))):
            first = 200 if random.random() < 0.3 else len(raw)
            raw[random.randrange(first)] = random.randrange(256)
    database.write_bytes(bytes(raw))


SCHEMES = (
    *(f"ALTER TABLE {table} RENAME TO other_{table}" for table in TABLES),
    *(f"DELETE FROM {table}" for table in TABLES),
    "ALTER TABLE failures DROP COLUMN evaluated",
    "ALTER TABLE failures RENAME COLUMN runs TO ran",
    "ALTER TABLE failures ADD COLUMN more TEXT",
    "ALTER TABLE buckets ADD COLUMN made TEXT GENERATED ALWAYS AS (id || 'x')",
    "CREATE TABLE more (x)",
    "CREATE VIEW more AS SELECT 1",
    "CREATE TRIGGER t AFTER INSERT ON shards BEGIN DELETE FROM failures; END",
    "CREATE TRIGGER t AFTER UPDATE ON failures BEGIN DELETE FROM buckets; END",
    "ALTER TABLE failures RENAME TO f; CREATE VIEW failures AS SELECT * FROM f",
    "ALTER TABLE failures RENAME TO f; CREATE VIEW failures AS WITH RECURSIVE r(number) AS "
    "(SELECT 1 UNION ALL SELECT number + 1 FROM r) SELECT f.* FROM f, r",
    "PRAGMA user_version=1", "PRAGMA user_version=99", "PRAGMA user_version=0",
    "INSERT INTO campaign SELECT 2, seed, config, versions FROM campaign",
    "UPDATE failures SET bucket='ffffffff'", "UPDATE failures SET program_id='0123456789ab' "
    "WHERE number=1", "UPDATE failures SET runs=0, failures=9", "UPDATE failures SET runs=1e18",
    "UPDATE failures SET state='minimized', bucket=NULL", "UPDATE failures SET target='npu'",
    "UPDATE failures SET best=NULL", "UPDATE failures SET number=-number",
    "UPDATE counts SET value=9e999", "UPDATE counts SET value='x'", "UPDATE counts SET value=-1",
    'UPDATE shards SET "index"=9223372036854775807 WHERE "index"=0',
    "INSERT INTO counts SELECT 'status', hex(randomblob(500)), 1",
)  # fmt: skip


def change_scheme(database: Path, random: Random) -> None:
    how = random.random()
    side = database.with_name(database.name + random.choice(("-wal", "-shm", "-journal")))
    if how < 0.7:
        with contextlib.closing(sqlite3.connect(database)) as opened:
            for statement in random.choice(SCHEMES).split("; ", 1):
                with contextlib.suppress(sqlite3.Error):
                    opened.execute(statement)
            opened.commit()
    elif how < 0.8:
        os.mkfifo(side)
    elif how < 0.9:
        side.write_bytes(random.randbytes(random.choice((0, 32, 5000))))
    else:
        make_device(database, random)


Mutate = Callable[[Path, Random], None]

OF_FILES: dict[str, Mutate] = {
    "fields": change_field,
    "bytes": change_bytes,
    "encodings": change_encoding,
    "sizes": change_size,
    "links": make_link,
    "devices": make_device,
    "permissions": change_mode,
    "names": change_name,
    "missing files": remove,
}
OF_DATABASES: dict[str, Mutate] = {
    "database: cells": change_cell,
    "database: bytes": change_database_bytes,
    "database: tables": change_scheme,
}
