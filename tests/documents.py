"""The Python examples of README.md and docs/*.md as modules, for the type checkers of `make lint`.

`python tests/documents.py build/documents` writes one module for each document: its blocks, on the
lines on which they stand there, so that an error names document and line. Two hidden comments say
what a document does not show:

    <!-- types: import time -->    code that its reader takes for granted
    <!-- module: jobs -->          what follows is another module of that name
"""

import re
import shutil
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PART = re.compile(
    r"^(?P<indent> *)```python\n(?P<block>.*?)^(?P=indent)```$"
    r"|^<!-- types:\s(?P<types>.*?)\s*-->$"
    r"|^<!-- module: (?P<module>\w+) -->$",
    re.DOTALL | re.MULTILINE,
)


def modules(text: str) -> dict[str, str]:
    """The code of a document by module; that of a module without a name comes first."""
    code = {"": ""}
    name = ""
    for part in PART.finditer(text):
        if part["module"]:
            name = part["module"]
            code[name] = ""
            continue
        kind = "types" if part["block"] is None else "block"
        line = text.count("\n", 0, part.start(kind))
        code[name] += "\n" * (line - code[name].count("\n")) + dedent(part[kind])
    return {name: written for name, written in code.items() if written}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    for document in DOCUMENTS:
        for name, code in modules(document.read_text(encoding="utf-8")).items():
            path = f"{document.relative_to(ROOT)}/{name}".rstrip("/")
            file = folder / f"{path}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code, encoding="utf-8")
