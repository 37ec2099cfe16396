"""What the tests of every HTML page need."""

import json
import shutil
from html.parser import HTMLParser

import pytest
from browser import find_browser

LARGEST = 6 << 20
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
SHOWN = "document.querySelectorAll('#table > tbody > tr:not([hidden])').length"


def with_long_path(path, folder):
    """A copy of the file whose path is one word, wider than a narrow page."""
    copy = folder / ("a_folder_of_one_word" * 5) / path.name
    copy.parent.mkdir(exist_ok=True)
    return shutil.copy(path, copy)


in_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")


class Page(HTMLParser):
    """The document of a page, and every attribute that would load something."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.document, self.in_document, self.tags = [], "", False, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.in_document = ("id", "document") in attributes
        self.loads += [(tag, name, value) for name, value in attributes
                       if name in ("src", "srcset", "href", "data", "action", "poster") and not value.startswith("#")]

    def handle_endtag(self, tag):
        self.in_document = False

    def handle_data(self, data):
        if self.in_document:
            self.document += data

    def shown(self):
        """What the scripts of the page read."""
        return json.loads(self.document)

    def results(self):
        return self.shown()["results"]
