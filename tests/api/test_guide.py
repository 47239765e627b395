"""The guide's curl lines run, every one, in their order, against a real server and worker."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi import FastAPI

from evenbeat.engine.worker import Worker
from loopback import served

GUIDE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


@pytest.mark.skipif(not shutil.which("jq") or not shutil.which("curl"), reason="no curl or jq")
def test_the_guide_can_be_pasted(
    api: FastAPI, worker: Worker, token_for: Callable[[str], str]
) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) > 10
    with served(api) as url:
        script = f"""set -euo pipefail
            API={url}/api/v1
            AUTH='Authorization: Bearer {token_for("operator")}'
            """ + "\n".join(blocks)
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    assert "event: figures" in done.stdout


def test_the_guide_names_every_route(api: FastAPI) -> None:
    for path in api.openapi()["paths"]:
        if path.startswith("/api/v1/") and not path.startswith(("/api/v1/tokens", "/api/v1/s")):
            words = re.sub(r"{\w+}", "", path.removeprefix("/api/v1")).strip("/").split("/")
            assert all(word in GUIDE for word in words if word), path
