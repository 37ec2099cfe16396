"""scripts/criteria.py: the table of docs/verifying.md follows from the committed figures."""

import shutil
import subprocess
import sys

from conftest import REPOSITORY


def criteria(repository, *arguments):
    return subprocess.run([sys.executable, repository / "scripts/criteria.py", *arguments],
                          capture_output=True, text=True)


def copy(folder):
    """A repository with the three files that the script uses."""
    for path in ["scripts/criteria.py", "results/cpu/criteria.json", "docs/verifying.md"]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, folder / path)
    return folder


def test_the_page_has_the_table_of_the_kept_figures():
    process = criteria(REPOSITORY, "--no-run", "--check")
    assert process.returncode == 0, process.stderr


def test_another_figure_is_noticed_and_written_once(tmp_path):
    repository = copy(tmp_path)
    figures = repository / "results/cpu/criteria.json"
    text = figures.read_text(encoding="utf-8")
    figures.write_text(text.replace('"flashbench": "caught"', '"flashbench": "missed"', 1),
                       encoding="utf-8")
    check = criteria(repository, "--no-run", "--check")
    assert check.returncode == 1
    assert "5 of 6" in check.stderr

    page = repository / "docs/verifying.md"
    assert criteria(repository, "--no-run").returncode == 0
    written = page.read_text(encoding="utf-8")
    assert "5 of 6" in written
    assert criteria(repository, "--no-run").returncode == 0
    assert page.read_text(encoding="utf-8") == written
    assert criteria(repository, "--no-run", "--check").returncode == 0
