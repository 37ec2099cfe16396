"""HTML reports: the file by itself, and in a browser."""

import json

import pytest
from conftest import REPOSITORY, Flashbench
from lib.json_file import read_json
from page import HOSTILE, LARGEST, SHOWN, Page, in_browser, with_long_path

H200 = REPOSITORY / "results/h200/h200.json.gz"
CPU = REPOSITORY / "results/cpu/cpu.json.gz"


def make(flashbench, *files, name="report.html"):
    flashbench("report", *files, "--format", "html", "--out", name)
    return flashbench.folder / name


@pytest.fixture(scope="module")
def pages(binary, tmp_path_factory):
    flashbench = Flashbench(binary, tmp_path_factory.mktemp("html"))
    return {path: make(flashbench, with_long_path(path, flashbench.folder), name=f"{path.stem}.html")
            for path in [H200, CPU]}


@pytest.fixture
def hostile(flashbench, tiny_result):
    """A page of a file whose name and texts are markup."""
    result = json.loads((tiny_result[0] / "tiny.json").read_text())
    result["config"]["description"] = HOSTILE
    del result["meta"]["sweep"]  # whose provider is renamed in one row
    result["results"][0].update(provider=HOSTILE, kernel=HOSTILE)
    result["results"][1].update(status="failed", reason=HOSTILE, performance=None)
    path = flashbench.folder / (HOSTILE.replace("/", "") + ".json")
    path.write_text(json.dumps(result))
    return make(flashbench, path)


# ---- the file


@pytest.mark.parametrize("path", [H200, CPU], ids=["h200", "cpu"])
def test_the_file_is_small_and_needs_no_other(pages, path):
    text = pages[path].read_text()
    assert len(text) < LARGEST
    page = Page(text)
    assert page.loads == []
    assert "link" not in page.tags and "iframe" not in page.tags
    assert "default-src 'none'" in text  # the browser refuses what the page might try to load


@pytest.mark.parametrize("path", [H200, CPU], ids=["h200", "cpu"])
def test_the_page_has_every_row_with_its_figures(pages, path):
    committed = read_json(path)["results"]
    (result,) = Page(pages[path].read_text()).results()
    assert len(result["rows"]) == len(committed)
    for row, source in zip(result["rows"], committed):
        assert row["provider"] == source["provider"]
        assert sorted(row["command"].split()) == sorted(source["repro"].split())  # older files have another order
        if source["performance"]:
            assert row["median_ms"] == pytest.approx(source["performance"]["median_ms"], rel=1e-5)
            samples = [1e3 * seconds for seconds in source["performance"]["measurement"]["samples_s"]]
            assert row["samples"]["ms"] == pytest.approx(samples, rel=1e-4)
        else:
            assert "median_ms" not in row and "samples" not in row


def test_several_files_of_any_device_stand_side_by_side(flashbench):
    results = Page(make(flashbench, H200, CPU).read_text()).results()
    assert [result["file"] for result in results] == [str(H200), str(CPU)]


def test_without_out_the_page_goes_to_stdout(flashbench, tiny_result):
    path = tiny_result[0] / "tiny.json"
    assert flashbench("report", path, "--format", "html").stdout == make(flashbench, path).read_text()


def test_a_sweep_writes_the_page_of_its_result(flashbench):
    process = flashbench("sweep", "--config", flashbench.config(), "--filter", "pass=forward,seq=16", "--out", "out",
                         "--html", "page.html", "--no-ceilings")
    assert process.stdout.endswith("written: out/tiny.json, out/tiny.csv, out/tiny.md, page.html\n")
    assert (flashbench.folder / "page.html").read_text() == make(flashbench, "out/tiny.json").read_text()


def test_a_sweep_that_cannot_write_its_page_does_not_begin(flashbench):
    process = flashbench("sweep", "--config", flashbench.config(), "--html", "none/page.html", expect=7)
    assert "none/page.html" in process.stderr
    assert not (flashbench.folder / "results/tiny/tiny.json").exists()


def test_filters_hold(flashbench, tiny_result):
    flashbench("report", tiny_result[0] / "tiny.json", "--format", "html", "-o", "f.html", "--filter", "pass=forward")
    (result,) = Page((flashbench.folder / "f.html").read_text()).results()
    assert {row["pass"] for row in result["rows"]} == {"forward"}


@pytest.mark.parametrize("text", ["", "{}", "[1]", None], ids=["empty", "no result", "no object", "missing"])
def test_a_bad_file_leaves_no_page(flashbench, tiny_result, text):
    if text is not None:
        (flashbench.folder / "bad.json").write_text(text)
    process = flashbench("report", tiny_result[0] / "tiny.json", "bad.json", "--format", "html", "-o", "r.html", expect=7)
    assert "bad.json" in process.stderr
    assert not (flashbench.folder / "r.html").exists()


def test_an_output_that_cannot_be_written_is_named(flashbench, tiny_result):
    process = flashbench("report", tiny_result[0] / "tiny.json", "-f", "html", "-o", "none/r.html", expect=7)
    assert "none/r.html" in process.stderr


def test_texts_of_a_file_are_no_markup(hostile):
    page = Page(hostile.read_text())
    assert "img" not in page.tags
    (result,) = page.results()
    assert result["rows"][0]["provider"] == HOSTILE
    assert result["rows"][1]["reason"] == HOSTILE


# ---- in a browser


@in_browser
def test_one_head_is_singular(flashbench, browser, tmp_path):
    for name, heads in [("many", ["4", "4"]), ("group", ["4", "1"]), ("one", ["1", "1"])]:
        flashbench("run", "--device", "cpu", "--seq", "16", "--head-dim", "8", "--q-heads", heads[0], "--kv-heads", heads[1],
                   "--providers", "naive", "--timeout", "0.1", "--json", tmp_path / f"{name}.json")
    browser.open(make(flashbench, *sorted(tmp_path.glob("*.json"))), 1600, False)
    browser.wait("document.querySelectorAll('figcaption').length === 3")
    titles = browser.evaluate("[...document.querySelectorAll('figcaption')].map(c => c.textContent).join('; ')")
    for words in [", 4 heads", ", 4 query heads, 1 K/V head", ", 1 head"]:
        assert any(title.endswith(words) for title in titles.split("; ")), titles


@in_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_every_kind_of_chart_is_drawn_in_the_width_there_is(pages, browser, width, dark):
    browser.open(pages[H200], width, dark)
    for kind in range(browser.evaluate("document.querySelectorAll('#figures button').length")):
        browser.evaluate(f"document.querySelectorAll('#figures button')[{kind}].click()")
        browser.wait("document.querySelectorAll('#charts details[open] .chart svg').length === "
                     "document.querySelectorAll('#charts details[open] .panel').length")
        assert browser.evaluate("document.querySelectorAll('#charts svg').length") > 4
        assert browser.evaluate("document.querySelectorAll('#charts svg .mark-symbol path').length") > 50
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []
    assert all(url.startswith("file:") for url in browser.requested())


@in_browser
def test_texts_in_the_table_are_as_wide_as_what_is_seen_of_it(pages, browser):
    browser.open(pages[H200], width=400)
    browser.evaluate("document.querySelector('#table .open').click()")
    for width in [400, 600]:
        browser.resize(width)
        for scrolled in [0, 100]:
            browser.evaluate(f"document.querySelector('.scroll').scrollLeft = {scrolled}")
            for part in ["caption > span", ".row-details"]:
                left, right, seen = browser.evaluate(f"""(() => {{
                  const box = document.querySelector('.scroll'), start = box.getBoundingClientRect().left + box.clientLeft;
                  const {{left, right}} = document.querySelector('#table {part}').getBoundingClientRect();
                  return [left - start, right - start, box.clientWidth];
                }})()""")
                assert 0 <= left < 10 and seen - 10 < right <= seen, (part, width, scrolled)


@in_browser
def test_long_arguments_are_wrapped_to_a_narrow_page(flashbench, browser):
    """Those of the command that made the file, and of the commands that repeat its rows."""
    flashbench("run", "--lengths", "_".join(f"q{n}" for n in range(1, 60)), "--head-dim", 16, "--no-time", "--device", "cpu",
               "--json", "run.json")
    result = json.loads((flashbench.folder / "run.json").read_text())
    result["meta"]["argv"] += ["--set", "/cases/0/seq=[" + ",".join(["4096"] * 60) + "]", "--set", "/description=" + "word" * 60]
    (flashbench.folder / "run.json").write_text(json.dumps(result))
    browser.open(make(flashbench, "run.json"), width=400)
    browser.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    browser.evaluate("document.querySelector('#table .open').click()")
    browser.wait("document.querySelector('.command') !== null")
    page = "document.documentElement"
    assert browser.evaluate(f"{page}.scrollWidth <= {page}.clientWidth")
    for text, beginning in [(".row-details .command", "flashbench run --providers"), ("dd", "flashbench run --lengths")]:
        found = f"[...document.querySelectorAll('{text}')].find((part) => part.textContent.startsWith('{beginning}'))"
        right, seen, height = browser.evaluate(f"((part) => [part.getBoundingClientRect().right, {page}.clientWidth, "
                                               f"part.getBoundingClientRect().height])({found})")
        assert right <= seen and height > 100, text


@in_browser
def test_filters_search_and_sorting(pages, browser):
    browser.open(pages[H200])
    rows = read_json(H200)["results"]
    assert browser.evaluate(SHOWN) == len(rows)
    browser.evaluate("[...document.querySelectorAll('#filters label')].find(l => l.textContent.includes('naive'))"
                     ".querySelector('input').click()")
    rows = [row for row in rows if row["provider"] != "naive"]
    assert browser.evaluate(SHOWN) == len(rows)
    browser.evaluate("search.value = 'unsupported'; search.dispatchEvent(new Event('input'))")
    assert browser.evaluate(SHOWN) == sum(row["status"] == "unsupported" for row in rows) > 0
    browser.evaluate("search.value = ''; search.dispatchEvent(new Event('input'))")
    heading = "[...document.querySelectorAll('#table thead th')].find(h => h.textContent === 'median ms')"
    times = ("[...document.querySelectorAll('#table > tbody > tr:not([hidden])')]"
             f".map(r => Number(r.children[{heading}.cellIndex].textContent)).filter(t => t === t)")
    for direction in ["ascending", "descending"]:
        browser.evaluate(f"{heading}.querySelector('button').click()")
        assert browser.evaluate(f"{heading}.getAttribute('aria-sort')") == direction
        shown = browser.evaluate(times)
        assert len(shown) > 300 and shown == sorted(shown, reverse=direction == "descending")
    assert browser.complaints() == []


@in_browser
def test_the_figures_of_a_column_have_as_many_digits(pages, browser):
    browser.open(pages[H200])
    texts = {"1.5": "1.500", "250": "250.0", "0.1": "0.1000", "1000": "1000", "12345": "12350", "1e-5": "1.000e-5", "0": "0"}
    assert browser.evaluate(f"[{', '.join(texts)}].map(significant)") == list(texts.values())
    sizes = {"0": "0 B", "512": "512 B", "1024": "1.000 KiB", "257 * 2 ** 20": "257.0 MiB"}
    assert browser.evaluate(f"[{', '.join(sizes)}].map(bytesText)") == list(sizes.values())
    headings = "[...document.querySelectorAll('#table thead th')].map(h => h.textContent)"
    for column in ["median ms", "TFLOP/s", "\u00d7 naive", "peak memory"]:
        cells = browser.evaluate(f"[...document.querySelectorAll('#table > tbody > tr')].map(r => r.children[{headings}.indexOf('{column}')].textContent)")
        figures = [cell.split()[0] for cell in cells if cell != "\u2013"]
        assert len(figures) > 300
        assert all(len(figure.replace(".", "").lstrip("0")) == 4 or float(figure) > 9999 for figure in figures), figures
    assert browser.complaints() == []


@in_browser
def test_axes_that_tell_rows_apart_have_a_column(flashbench, browser):
    flashbench("sweep", "--config", flashbench.config(), "--set", "/cases/0/window_left=[4,8]", "--set", "/cases/0/seq=16",
               "--no-ceilings", "--html", "page.html")
    browser.open(flashbench.folder / "page.html")
    headings = "[...document.querySelectorAll('#table thead th')].map(h => h.textContent)"
    assert "window_left" in browser.evaluate(headings) and "layout" not in browser.evaluate(headings)
    cells = f"[...new Set([...document.querySelectorAll('#table > tbody > tr')].map(r => r.children[{headings}.indexOf('window_left')].textContent))]"
    assert browser.evaluate(cells) == ["4", "8"]
    assert browser.complaints() == []


@in_browser
def test_a_row_opens_to_its_samples_and_command(pages, browser):
    browser.open(pages[H200])
    row = read_json(H200)["results"][1]
    browser.evaluate("document.querySelectorAll('#table .open')[1].click()")
    browser.wait("document.querySelectorAll('.row-details svg').length === 3")  # time, SM clock, power
    symbols = browser.evaluate("document.querySelector('.row-details svg').querySelectorAll('.mark-symbol path').length")
    assert symbols == len(row["performance"]["measurement"]["samples_s"])
    assert browser.evaluate("document.querySelector('.row-details .command').textContent") == row["repro"]
    browser.evaluate("document.querySelectorAll('#table .open')[1].click()")
    assert browser.evaluate("document.querySelector('.row-details')") is None
    assert browser.complaints() == []


@in_browser
def test_a_pointer_over_a_point_shows_its_row(pages, browser):
    browser.open(pages[H200])
    point = "document.querySelector('#charts .mark-symbol path')"
    browser.wait(f"{point} !== null")
    x, y = browser.evaluate(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({point}.getBoundingClientRect())")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    browser.wait("!tooltip.hidden")
    said = browser.evaluate("tooltip.textContent")
    assert all(word in said for word in ["forward  bf16", "95%:", "TFLOP/s", "MHz"]), said
    assert browser.complaints() == []


@in_browser
def test_hostile_texts_are_shown_as_they_are(hostile, browser):
    browser.open(hostile)
    browser.wait("document.querySelectorAll('#charts svg').length > 0")
    browser.evaluate("document.querySelectorAll('#table .open')[0].click()")
    browser.wait("document.querySelectorAll('.row-details svg').length > 0")
    assert browser.evaluate("document.querySelectorAll('#table .open')[0].textContent") == HOSTILE
    assert browser.evaluate("window.hacked === undefined && document.querySelectorAll('img').length === 0")
    assert browser.complaints() == []
