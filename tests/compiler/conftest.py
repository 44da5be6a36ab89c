"""A cache of the tests' own, so that they neither find nor leave anything in the user's."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
