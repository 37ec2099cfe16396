"""scripts/docs: the documents agree with the committed results."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import REPOSITORY


def docs(repository, binary, *arguments):
    return subprocess.run([repository / "scripts/docs", *arguments], capture_output=True, text=True,
                          env={**os.environ, "FLASHBENCH": str(binary)})


@pytest.fixture
def copy(tmp_path):
    """A repository with the files that the script uses."""
    for path in ["scripts", "docs", "configs"]:
        shutil.copytree(REPOSITORY / path, tmp_path / path, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [REPOSITORY / "README.md", *(REPOSITORY / "results").rglob("*.csv"),
                 *(REPOSITORY / "results").rglob("*.json*")]:
        target = tmp_path / path.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path


def test_the_documents_are_what_the_results_say(binary):
    process = docs(REPOSITORY, binary, "--check")
    assert process.returncode == 0, process.stderr
    assert "not run" not in process.stderr


def test_results_with_samples_are_compressed():
    """The committed ones: a user's own, such as results/quick, may lie beside them."""
    listed = subprocess.run(["git", "ls-files", "-z", "results/*.json"], cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip(f"no checkout: {listed.stderr.strip()}")
    names = listed.stdout.split("\0")[:-1]
    assert names and [name for name in names if (REPOSITORY / name).stat().st_size > 1 << 17] == []


def anchors(page):
    """Those that a Markdown renderer gives to the headings."""
    found, in_code = {}, False
    for line in page.read_text().splitlines():
        in_code ^= line.startswith("```")
        heading = None if in_code else re.match(r"#+ (.*)", line)
        if heading:
            name = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            found[name] = found.get(name, -1) + 1
    return {f"{name}-{number}" if number else name for name, last in found.items() for number in range(last + 1)}


def test_links_lead_somewhere():
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md"), REPOSITORY / "results/README.md"]
    broken = []
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
                broken.append(f"{page.name}: {link}")
    assert len(pages) > 10 and broken == []


def test_what_was_changed_by_hand_is_noticed_and_written_once(copy, binary):
    texts = {page: (copy / page).read_text(encoding="utf-8")
             for page in ("docs/kernels.md", "docs/cpu_kernels.md", "README.md")}
    rows = re.search(r"\d+ rows: \d+ ok", texts["README.md"]).group()
    value = re.search(r"(?<=-->)[^\n<]+<!-- end -->", texts["docs/cpu_kernels.md"]).group()
    changes = {"docs/kernels.md": ("| ceiling | ", "| ceiling | 1"), "README.md": (rows, "1" + rows),
               "docs/cpu_kernels.md": (value, "1" + value)}
    for page, (old, new) in changes.items():
        assert old in texts[page]
        (copy / page).write_text(texts[page].replace(old, new, 1), encoding="utf-8")
    check = docs(copy, binary, "--check")
    assert check.returncode == 1
    for page, (_, new) in changes.items():
        assert page in check.stderr and new in check.stderr

    written = docs(copy, binary)
    assert written.returncode == 0, written.stderr
    assert {page: (copy / page).read_text(encoding="utf-8") for page in changes} == texts
    assert "results/h200/plots/ladder_flops_forward_bf16.png" in written.stdout


@pytest.mark.parametrize("page, file, put", [("kernels", "ladder.csv --filter", "nowhere.csv --filter"),
                                             ("cpu_kernels", "value: results/cpu/cpu.csv", "value: nowhere.csv")])
def test_what_cannot_be_made_names_its_page(copy, binary, page, file, put):
    path = copy / f"docs/{page}.md"
    text = path.read_text(encoding="utf-8")
    assert file in text
    path.write_text(text.replace(file, put), encoding="utf-8")
    process = docs(copy, binary, "--check")
    assert process.returncode == 1
    assert re.search(rf"docs/{page}.md: .*nowhere.csv: expected the CSV of a sweep", process.stderr)


@pytest.mark.parametrize("text, problem", [
    ("Text <!-- value: results/cpu/cpu.csv -->1\nmore", "docs/new.md:2: this value has no end"),
    ("<!-- table: speed results/h200/h200.csv -->\nmore", "docs/new.md:2: this table has no end"),
    ("<!-- value: results/cpu/cpu.csv -->1<!-- end -->", "docs/new.md:2: a value must not begin a line"),
])
def test_a_marker_that_would_not_work_names_its_line(copy, binary, text, problem):
    (copy / "docs/new.md").write_text(f"Text\n{text}\n", encoding="utf-8")
    process = docs(copy, binary, "--check")
    assert process.returncode == 1
    assert problem in process.stderr
