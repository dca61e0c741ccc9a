"""The conversations that every template of this folder renders.

Each is (name, variables): messages as a client sends them after the server has put them in order (arguments of tool calls as
objects), and what else a template may be given.
"""

# What every conversation is rendered with unless it says otherwise.
DEFAULTS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "tools": None,
    "documents": None,
    "add_generation_prompt": True,
}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, \"quoted\""},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "nullable": True},
                "tags": {"type": "array", "items": {"type": "string"}},
                "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat"]},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "now", "description": "The time, <b>now</b> & here – 时间", "parameters": {"type": "object", "properties": {}}}}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"oneOf": [{"type": "string", "description": "words"}, {"type": "array", "items": {"type": "string"}}]},
                "limit": {"type": ["integer", "null"]},
                "filters": {"type": "array", "items": {"type": "object", "properties": {"field": {"type": "string"}}}},
                "exact": {"type": "boolean", "default": False},
                "score": {"type": "number"},
                "anything": {},
            },
        },
    },
}

SYSTEM = {"role": "system", "content": "You are a careful helper."}
HELLO = {"role": "user", "content": "Hello!"}
HI = {"role": "assistant", "content": "Hi there. How can I help?"}
ASK = {"role": "user", "content": "What is 2 + 2?"}
WEATHER_QUESTION = {"role": "user", "content": "Weather in Ulm?"}


def call(name, arguments, number=1):
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(calls, content="", **more):
    return {"role": "assistant", "content": content, "tool_calls": calls, **more}


def result(content, number=1, name="get_weather"):
    return {"role": "tool", "tool_call_id": f"call_{number}", "name": name, "content": content}


ULM = call("get_weather", {"city": "Ulm", "days": 3, "where": {"lat": 48.4, "lon": 10.0}, "tags": ["a", "b"], "exact": True})

CONVERSATIONS = [
    ("one user message", {"messages": [HELLO]}),
    ("system and user", {"messages": [SYSTEM, HELLO]}),
    ("several turns", {"messages": [SYSTEM, HELLO, HI, ASK]}),
    ("no generation prompt", {"messages": [HELLO, HI], "add_generation_prompt": False}),
    ("generation prompt after the assistant", {"messages": [HELLO, HI]}),
    ("unicode", {"messages": [{"role": "system", "content": "Sprich Deutsch – höflich."}, {"role": "user", "content": "你好，世界 🦆 naïve\u00a0café\u2028end"}]}),
    ("markup in the text", {"messages": [{"role": "user", "content": "{{ 1 + 1 }} {% if x %} <|im_end|> </think> <b>&amp;</b> \"q\" 'q' \\n"}]}),
    ("white space in the text", {"messages": [{"role": "user", "content": "  two\n\n\tlines  \n"}, {"role": "assistant", "content": "\n\n trimmed? \n"}, {"role": "user", "content": "\n"}]}),
    ("empty content", {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": ""}]}),
    ("missing content", {"messages": [HELLO, {"role": "assistant"}, ASK]}),
    ("no content", {"messages": [HELLO, {"role": "assistant", "content": None}, ASK]}),
    ("content in parts", {"messages": [{"role": "user", "content": [{"type": "text", "text": "part one, "}, {"type": "text", "text": "part two"}]}]}),
    ("an image part", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "what is it?"}]}]}),
    ("two system messages", {"messages": [SYSTEM, {"role": "system", "content": "Be brief."}, HELLO]}),
    ("system in the middle", {"messages": [HELLO, HI, SYSTEM, ASK]}),
    ("developer", {"messages": [{"role": "developer", "content": "Only facts."}, HELLO]}),
    ("unknown role", {"messages": [HELLO, {"role": "narrator", "content": "It rains."}]}),
    ("two user messages", {"messages": [HELLO, ASK]}),
    ("assistant first", {"messages": [HI, ASK]}),
    ("no messages", {"messages": []}),
    ("thinking on", {"messages": [SYSTEM, HELLO], "enable_thinking": True, "thinking": True}),
    ("thinking off", {"messages": [SYSTEM, HELLO], "enable_thinking": False, "thinking": False}),
    ("reasoning inside the text", {"messages": [HELLO, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFour."}, ASK], "enable_thinking": True, "thinking": True}),
    ("reasoning beside the text", {"messages": [HELLO, {"role": "assistant", "content": "Four.", "reasoning_content": "hm"}, ASK]}),
    ("reasoning of the last turn", {"messages": [HELLO, {"role": "assistant", "content": "Four.", "reasoning_content": "hm\n", "thinking": "hm"}], "add_generation_prompt": False, "thinking": True}),
    ("tools, no call", {"messages": [SYSTEM, WEATHER_QUESTION], "tools": [WEATHER, CLOCK]}),
    ("tools without system", {"messages": [WEATHER_QUESTION], "tools": [SEARCH, CLOCK]}),
    ("no tools", {"messages": [HELLO], "tools": []}),
    ("call and result", {"messages": [SYSTEM, WEATHER_QUESTION, asks([ULM]), result("{\"temp\": 21.5}")], "tools": [WEATHER, CLOCK]}),
    ("call without content", {"messages": [WEATHER_QUESTION, asks([ULM], content=None), result("21 °C")], "tools": [WEATHER]}),
    ("call with text", {"messages": [WEATHER_QUESTION, asks([ULM], content="Let me look."), result("21"), {"role": "assistant", "content": "It is 21."}, {"role": "user", "content": "Thanks"}], "tools": [WEATHER]}),
    ("two calls at once", {"messages": [WEATHER_QUESTION, asks([ULM, call("now", {}, 2)]), result("21"), result("12:00", 2, "now")], "tools": [WEATHER, CLOCK]}),
    ("arguments as text", {"messages": [WEATHER_QUESTION, asks([call("get_weather", "{\"city\": \"Ulm\"}")]), result("21")], "tools": [WEATHER]}),
    ("arguments missing", {"messages": [WEATHER_QUESTION, asks([{"id": "call_1", "type": "function", "function": {"name": "now"}}]), result("12:00", 1, "now")], "tools": [CLOCK]}),
    ("call with reasoning", {"messages": [WEATHER_QUESTION, asks([ULM], reasoning_content="I need data."), result("21")], "tools": [WEATHER], "enable_thinking": True, "thinking": True}),
    ("result in parts", {"messages": [WEATHER_QUESTION, asks([ULM]), result([{"type": "text", "text": "21"}, {"type": "text", "text": " °C"}])], "tools": [WEATHER]}),
    ("result without call", {"messages": [HELLO, result("21")]}),
    ("calls in two turns", {"messages": [WEATHER_QUESTION, asks([ULM]), result("21"), {"role": "assistant", "content": "21."}, ASK, asks([call("now", {}, 2)]), result("12:00", 2, "now")], "tools": [WEATHER, CLOCK]}),
    ("options of single models", {"messages": [HELLO], "reasoning_effort": "high", "model_identity": "You are Test.", "builtin_tools": ["browser", "python"], "documents": [{"title": "T", "text": "D"}]}),
]
