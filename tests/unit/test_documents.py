"""The Python examples of the documents reach the type checkers, each on its own line."""

import re

import pytest

from documents import DOCUMENTS, modules


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_example_is_on_its_line_in_one_module(document):
    text = document.read_text(encoding="utf-8")
    written = [code.splitlines() for code in modules(text).values()]
    language = None
    for number, line in enumerate(text.splitlines()):
        if fence := re.match(r" *(?:```|~~~)(\w*)", line):
            language = fence[1] if language is None else None
        elif language in ("python", "py") and line:
            copies = [code[number] for code in written if number < len(code) and code[number]]
            assert [copy.strip() for copy in copies] == [line.strip()], number + 1


def test_hidden_comments_are_on_their_lines_too():
    text = """Words.

<!-- types: import time -->
```python
time.sleep(1)
```

<!-- module: jobs -->
<!-- types:
from evenbeat import Evenbeat
app = Evenbeat()
-->
Steps:

1. Define it:

   ```python
   @app.task
   def send() -> None: ...
   ```
"""
    assert modules(text) == {
        "": "\n\nimport time\n\ntime.sleep(1)\n",
        "jobs": "\n" * 9 + "from evenbeat import Evenbeat\napp = Evenbeat()" + "\n" * 7
        + "@app.task\ndef send() -> None: ...\n",
    }  # fmt: skip
