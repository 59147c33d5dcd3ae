"""The program under examination, in a process of its own. Owns nothing that matters: whatever the program does to this
process, all it can do with it is give answers.

Started with the two ends of its pipes as arguments. Reads the program, then calls, one JSON line each; writes one JSON
line for each.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from humaneval.inside.values import decode, encode


def main() -> None:
    """Define the function, then answer calls until there are no more."""
    reader = os.fdopen(int(sys.argv[1]), encoding="utf-8")
    writer = os.fdopen(int(sys.argv[2]), "w", encoding="utf-8")

    def say(**fields: Any) -> None:
        writer.write(json.dumps(fields) + "\n")
        writer.flush()

    task = json.loads(reader.readline())
    # not `__main__`: a program's own little test at its end is not what is asked
    namespace: dict[str, Any] = {"__name__": "solution"}
    try:
        for source in (task["given"], task["code"]):
            exec(compile(source, "<solution>", "exec"), namespace)
        function = namespace[task["entry_point"]]
    except Exception as error:
        say(error=type(error).__name__, message=str(error)[:300])
        return
    say(ready=True)
    for line in reader:
        args, kwargs = json.loads(line)
        try:
            value = encode(function(*[decode(one) for one in args], **{k: decode(v) for k, v in kwargs.items()}))
        except Exception as error:
            say(error=type(error).__name__, message=str(error)[:300])
        else:
            say(value=value)


if __name__ == "__main__":
    main()
