"""Is a query set up right? Facts are gathered first, then each check looks at them; one failure stops no other."""

from sparkonce.ops.doctor.checks import examine
from sparkonce.ops.doctor.findings import Finding, Verdict
from sparkonce.ops.doctor.gathering import gather

__all__ = ["Finding", "Verdict", "examine", "gather"]
