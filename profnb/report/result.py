"""The forms that every result has: text, a page of HTML, JSON, itself in a notebook.

Nothing is imported before somebody asks, so that ``import profnb`` stays cheap.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profnb.core.safe_files import whole_file

if TYPE_CHECKING:
    from profnb.compare.speedup import Difference
    from profnb.report.report import Report
    from profnb.subjects.study import Study


class Result:
    """A result. Shown in a notebook, it is its report."""

    @property
    def _report(self) -> "Report":
        raise NotImplementedError

    def summary(self) -> str:
        """The report as plain text."""
        return self._report.text()

    def report(self, live: bool | None = None) -> None:
        """Show the report in the notebook.

        Args:
            live: Taken for the sake of profiles; other reports have no live controls.
        """
        from profnb.report.frontend import show_bundles

        del live
        show_bundles([self._repr_mimebundle_()], self.summary())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        del include, exclude
        return self._report.bundle()

    def _mime_(self) -> tuple[str, str]:
        """The report for marimo, which asks for this first and runs no script of an output."""
        return "text/html", self._repr_mimebundle_()["text/html"]

    def _ipython_display_(self) -> None:
        """The report as ``report()`` shows it, with the script that the HTML alone has not."""
        from profnb.report.frontend import for_notebooks

        for_notebooks(self.report)


class ComparedResult(Result):
    """B against A."""

    @property
    def difference(self) -> "Difference":
        """The ratio and its interval."""
        raise NotImplementedError

    @property
    def leading(self) -> "Difference":
        """The difference that the verdict speaks of."""
        return self.difference

    @property
    def ratio(self) -> float:
        """Typical time of B over that of A; below 1 B is faster."""
        return self.difference.ratio

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the ratio."""
        return self.difference.low, self.difference.high

    @property
    def is_different(self) -> bool:
        """True if the interval leaves out 1."""
        return self.difference.is_different


class SharedResult(Result):
    """A result that leaves as a page and as plain values too."""

    @property
    def _traced_study(self) -> "Study | None":
        """The analyses of its trace; None without one."""
        return None

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write the report, with the timeline of every event, as one HTML file that needs no network.

        Returns:
            The file's path.
        """
        from profnb.report.report import page_html

        target = Path(path).expanduser()
        with whole_file(target) as partial:
            partial.write_text(page_html(self._report, self._traced_study), encoding="utf-8")
        return target

    def to_dict(self) -> dict[str, Any]:
        """Give what the report says as plain values."""
        raise NotImplementedError

    def to_json(self) -> str:
        """``to_dict()`` as JSON, in one line."""
        from profnb.report.as_data import as_json

        return as_json(self.to_dict())
