#!/usr/bin/env python3
"""Makes the cases of this folder: what the reference (reference.py) renders from the templates beside it.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install jinja2==3.1.6
    /tmp/venv/bin/python tests/golden/templates/make_cases.py

The C++ tests read what it writes, and nothing else of Python.
"""

import json
import pathlib

import conversations
import deepseek_v32
import language
from reference import render

HERE = pathlib.Path(__file__).resolve().parent


def write(name, cases, **fields):
    """A JSON file with one case a line, so that a change shows as the lines it concerns."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}," for key, value in fields.items()]
    body = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in cases)
    text = "\n".join(["{", *lines, "  \"cases\": [", body, "  ]", "}", ""])
    (HERE / name).write_text(text, encoding="utf-8")
    print(f"{name}: {len(cases)} cases")


def language_cases():
    cases = []
    for entry in language.CASES:
        template, own = entry if isinstance(entry, tuple) else (entry, {})
        text, error = render(template, {**language.VARIABLES, **own})
        case = {"template": template, **({"variables": own} if own else {})}
        cases.append({**case, "error": error} if text is None else {**case, "expected": text})
    for template, word in language.UNSUPPORTED:
        cases.append({"template": template, "unsupported": word})
    return cases


def variables_of(conversation):
    """What Hugging Face hands to a template: always tools, documents and the special tokens."""
    return {**conversations.DEFAULTS, **conversation}


def family_cases(template):
    for name, conversation in conversations.CONVERSATIONS:
        text, error = render(template, variables_of(conversation))
        yield {"conversation": name, **({"error": error} if text is None else {"expected": text})}


def deepseek_v32_cases():
    for name, conversation in conversations.CONVERSATIONS:
        # In parts, a text reaches this scheme only after it was put together.
        if any(isinstance(m.get("content"), list) for m in conversation["messages"]):
            continue
        for thinking in (False, True):
            case = {"conversation": name, "thinking": thinking}
            try:
                yield {**case, "expected": deepseek_v32.render({**conversation, "enable_thinking": False, "thinking": thinking})}
            except deepseek_v32.Refused as error:
                yield {**case, "error": str(error)}


if __name__ == "__main__":
    write("language.json", language_cases(), variables=language.VARIABLES)
    write("conversations.json", [{"name": name, "variables": variables} for name, variables in conversations.CONVERSATIONS],
          defaults=conversations.DEFAULTS)
    for path in sorted(HERE.glob("*.jinja")):
        write(f"{path.stem}.json", list(family_cases(path.read_text(encoding="utf-8"))))
    write("deepseek_v32.json", list(deepseek_v32_cases()))
