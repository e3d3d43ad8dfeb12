"""Masking what changes from run to run, machine to machine and program to program in a message.

Two occurrences of one failure should read the same after `mask_volatile`, whatever the extents and
dtypes of their programs, the folder they ran in, and the names the compiler made up.
"""

from __future__ import annotations

import re

LONGEST = 400
"""Characters kept of a masked message."""
_READ = 4000
"""Characters of a message that are looked at: the rules below take time that grows with its square
where somebody means it to."""
_SEARCHED = 20_000
"""Those among which a compiler's first error is looked for."""

Rules = tuple[tuple[re.Pattern[str], str], ...]


def _rules(*rules: tuple[str, str]) -> Rules:
    return tuple((re.compile(pattern, re.S), replacement) for pattern, replacement in rules)


# Compiler names made up per graph: buf12, arg0_1, tmp5, s0, u0, primals_3, sdpa_score0 …
_MADE_UP = (
    "arg|buf|tmp|primals|tangents|view|getitem|expand|permute|clone|mul|add|div|sub|mm|bmm|where|"
    "convert_element_type|unsqueeze|squeeze|slice|full|sdpa_score|sdpa_mask|subgraph|score_mod|"
    "mask_mod|true_graph|false_graph|op|fn|graph|in_ptr|out_ptr|in_out_ptr|ps|ks|zuf|[a-z]"
)
_WIDTHS = r"b?float(?:8\w*|16|32|64)|complex(?:64|128)|u?int(?:8|16|32|64)"


def _parentheses(deep: int) -> str:
    """A pattern of parentheses with others in them, as many deep."""
    inner = _parentheses(deep - 1) if deep > 1 else r"\(\)"
    return rf"\([^()]*(?:{inner}[^()]*)*\)"


# What dynamo and Inductor put around a message for a person, and values written out in it.
_WRAPPING = _rules(
    (r"\x1b\[[0-9;]*[A-Za-z]", ""),
    (r"[\u2018\u2019\u201c\u201d`\"]", "'"),
    (r"\s+from user code:.*", ""),
    (r"\s+Developer debug context:.*", ""),
    (r"\s+For more details about this graph break.*", ""),
    (r"\s+Set TORCHDYNAMO_VERBOSE.*", ""),
    (r"\s+Found from :.*", ""),
    (r"\s+This error most often comes from a incorrect fake.*", ""),
    (r"\n\s*Hint: [^\n]*", ""),
    (r"\n\s*Search for '(?:cuda|hip)Error\w+' in .*", ""),  # the advice behind each error of CUDA
    (r"\s+graph\(\):\s+%.*", ""),  # a graph written out
    (r"(?<!Unsafe side effect)\n\s*Higher Order Operator: [^\n]*", ""),  # around what failed
    (r"(\s+target: \S+)\s.*", r"\1"),
    (r"RuntimeError when making fake tensor call\s+Explanation: .*?: (?=call_)", ""),
    # DTensor names an operator of its own, reached through whichever torch has.
    (r"call_\w+ .*?\): got (?=.*Sharding propagation failed for )", ""),
    (r"(?:\\n|\n){2}Sharding propagation failed for .*", ""),
    (r"(call_\w+ (?:<[^<>]*>|[\w.]+))\(\*\(.*?\): got ", r"\1(<ARGS>): got "),
    (rf"\b\w*(?:Tensor|tensor){_parentheses(2)}", "<TENSOR>"),
    (r"torch\.Size\(\[[^\]]*\]\)", "<SHAPE>"),
    (rf"(?<=\w=){_parentheses(4)}", "<VALUE>"),
    (r"(?<![\w<])[\(\[]-?\w{1,8}(?:, -?\w{1,8})*,?[\)\]]", "<SHAPE>"),
)

# Where it ran, and what the compiler called things.
_PLACES_AND_NAMES = _rules(
    (r"https?://\S+", "<URL>"),
    (r"<([\w.]+)[^<>]*? at 0x[0-9a-fA-F]+>", r"<\1>"),
    (r"\b\w+_program\.(?=[A-Z])", "<program>."),  # the program's own classes
    # One of several mods has a name of its own: told as the only one is.
    (
        r"bound method \w+\.\w+ of <<program>\.\w+",
        "bound method MaskMod.mask_mod of <<program>.MaskMod",
    ),
    (r"0x[0-9a-fA-F]+", "<ADDR>"),
    (r"(?<=in file ')[\w.+@~/-]+\.py(?=')", "<PATH>"),  # a case has those below site-packages
    (r"(?:/[\w.+@~-]+){2,}/?(?::\d+)*", "<PATH>"),
    (r"\b[a-z0-9]{40,}\b", "<HASH>"),
    (r"\b(?:CPU_CAPABILITY_?)?AVX(?:512|2)\w*", "<ISA>"),
    (r"\b(?:cpp_fused|triton_\w{2,4}_fused|cpp_flex|cpp_CppMicroGemm)\w*", "<KERNEL>"),
    (rf"\b(?:{_MADE_UP})_?\d+(?:_\d+)*\b", "<NAME>"),
)

_DTYPES = _rules(
    (rf"\b(?:torch\.)?(?:{_WIDTHS})\b", "<DTYPE>"),
    (r"\btorch\.(?:float|half|double|int|long|bool)\b", "<DTYPE>"),
    (r"\b(?:c10::|at::)(?:Half|BFloat16)\b|\b(?:Float|Half|BFloat16|Double)\b", "<DTYPE>"),
    (r"(?<=dtype: )(?:float|double|long int|int|bool)\b", "<DTYPE>"),
)

# A compiler's types say what is wrong; how wide a vector is says what machine it was. A variable's
# number is made up.
_VECTORS = _rules(
    (r"\b(?:at::vec::)?(?:\w+::)?(?:VectorizedN?|VecMask)<[^<>]*(?:<[^<>]*>[^<>]*)*>", "<VECTOR>"),
    (r"\b(\w*[A-Za-z_])\d+(?=')", r"\1<N>"),
)

_NUMBERS = _rules(
    (r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)", "<N>"),
    (r"<N>(?:\s*[,x]\s*<N>)+", "<N>"),
    (r"\s+", " "),
    (r"\S+, <PATH>, index out of bounds: .*", "index out of bounds"),
    (r"(expected size <N>==<N>, stride <N>==<N> at dim=<N>)(?:; \1)+", r"\1"),
)

# What is computed from sizes, `s0**2*s1`, says no more than a size's name, nor do several.
_SIZES = _rules(
    (r"(?:<N>\*)*<NAME>(?:(?:\*\*|//|[*+-])(?:<NAME>|<N>))+|(?:<N>\*)+<NAME>", "<NAME>"),
    (r"<NAME>(?:, <NAME>)+", "<NAME>"),
)

_OF_PYTHON = (*_WRAPPING, *_DTYPES, *_PLACES_AND_NAMES, *_NUMBERS, *_SIZES)
_OF_COMPILER = (*_WRAPPING[:2], *_PLACES_AND_NAMES, *_VECTORS, *_NUMBERS)

_DIAGNOSIS = re.compile(r"^\S+?:\d+(?::\d+)?: (?:fatal )?error: (?P<text>.+)$", re.M)
_BARE_DIAGNOSIS = re.compile(r"\berror: (?!error: )(?P<text>.+)")


def first_diagnosis(text: str) -> str | None:
    """The first error in a C++ compiler's output ("file:line:column: error: …"), or None."""
    found = _DIAGNOSIS.search(text)
    return found["text"] if found else None


def mask_diagnosis(text: str) -> str:
    """The first error in a C++ compiler's output, masked; its "file:line:" may be gone already."""
    found = first_diagnosis(text)
    bare = _BARE_DIAGNOSIS.search(text) if found is None else None
    return _masked(found or (bare["text"] if bare else text), _OF_COMPILER)


def mask_volatile(text: str) -> str:
    """`text` in one line with addresses, paths, shapes, dtypes, numbers and made-up names replaced
    by placeholders; of a compiler's output only the first error."""
    text = text[:_SEARCHED]
    return mask_diagnosis(text) if first_diagnosis(text) else _masked(text, _OF_PYTHON)


def _masked(text: str, rules: Rules) -> str:
    text = text[:_READ]
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text.strip()[:LONGEST].rstrip()
