"""The reference: Jinja with the settings that Hugging Face renders chat templates with.

The environment is re-created here (immutable sandbox, trim_blocks, lstrip_blocks, loop controls, the generation tag, the
tojson filter, raise_exception and strftime_now), so that the cases depend on one pinned package only.
"""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

JINJA = "3.1.6"
# The moment that strftime_now shows in every case, in UTC.
NOW = 1754000000


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: text as any other, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render", lineno=line)
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def _tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def _strftime_now(pattern):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(pattern)


def environment():
    if jinja2.__version__ != JINJA:
        raise SystemExit(f"the cases are made with Jinja {JINJA}, not {jinja2.__version__}")
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    return made


ENVIRONMENT = environment()


def render(template, variables):
    """(text, None), or (None, the error's message)."""
    try:
        return ENVIRONMENT.from_string(template).render(**variables), None
    except Exception as error:  # whatever Python raises is "an error" to the other side
        return None, f"{type(error).__name__}: {error}"
