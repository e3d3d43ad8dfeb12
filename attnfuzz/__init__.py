"""attnfuzz, as it is imported: one package of its own name, so that no other package of a project
can be taken for a part of it. Its parts are the repository's folders, by links.
"""
