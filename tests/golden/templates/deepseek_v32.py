"""DeepSeek-V3.2's way to write a conversation, which has no Jinja template: a second implementation, to test against.

What is written follows the public description of the scheme; see README.md. Variables are as for a template: messages, tools,
and `thinking` or `enable_thinking` for the mode.
"""

import json

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, THOUGHT = "<think>", "</think>"
MARK = "｜DSML｜"

TOOLS = """## Tools

You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<@function_calls>" block like the following as part of your reply to the user:
<@function_calls>
<@invoke name="$FUNCTION_NAME">
<@parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</@parameter>
...
</@invoke>
<@invoke name="$FUNCTION_NAME2">
...
</@invoke>
</@function_calls>

String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).

If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:

<@function_calls>
...
</@function_calls>

<function_results>
...
</function_results>

<think>...thinking about results</think>

Here are the functions available in JSONSchema format:
<functions>
%s
</functions>
"""


class Refused(Exception):
    pass


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def tools_text(tools):
    head, tail = TOOLS.replace("@", MARK).split("%s")
    return head + "\n".join(dumps(tool["function"]) for tool in tools) + tail


def parameter(name, value):
    text = isinstance(value, str)
    flag = "true" if text else "false"
    return f'<{MARK}parameter name="{name}" string="{flag}">{value if text else dumps(value)}</{MARK}parameter>'


def calls_text(calls):
    out = f"\n\n<{MARK}function_calls>\n"
    for call in calls:
        arguments = call["function"].get("arguments") or {}
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        inside = "\n".join(parameter(name, value) for name, value in arguments.items())
        out += f'<{MARK}invoke name="{call["function"]["name"]}">\n{inside}\n</{MARK}invoke>\n'
    return out + f"</{MARK}function_calls>"


def render(variables):
    messages = [dict(message) for message in variables["messages"]]
    thinking = bool(variables.get("thinking") or variables.get("enable_thinking"))
    if variables.get("tools"):
        if not messages or messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        messages[0]["tools"] = variables["tools"]
    last_user = max((i for i, m in enumerate(messages) if m["role"] in ("user", "developer")), default=-1)

    def extras(message):
        out = []
        if message.get("tools"):
            out.append(tools_text(message["tools"]))
        if message.get("response_format"):
            out.append("## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n" +
                       dumps(message["response_format"]))
        return out

    text = BOS
    for i, message in enumerate(messages):
        role, content = message["role"], message.get("content") or ""
        if role == "system":
            text += "\n\n".join([content, *extras(message)])
        elif role in ("user", "developer"):
            if role == "developer":
                if not content:
                    raise Refused("a developer message needs content")
                content = "\n\n".join(["", *extras(message), f"# The user's message is: {content}"])
            text += USER + content + ASSISTANT + (THINK if thinking and i == last_user else THOUGHT)
        elif role == "assistant":
            reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
            calls = message.get("tool_calls")
            if thinking and i > last_user:
                if not reasoning and not calls:
                    raise Refused("an answer after the last question needs its reasoning")
                text += reasoning + THOUGHT
            text += content + (calls_text(calls) if calls else "") + EOS
        elif role == "tool":
            caller = i - 1
            while caller >= 0 and messages[caller]["role"] == "tool":
                caller -= 1
            asked = (messages[caller].get("tool_calls") or []) if caller >= 0 and messages[caller]["role"] == "assistant" else []
            if i - caller > len(asked):
                raise Refused("an answer of a tool needs a call")
            if i - caller == 1:
                text += "\n\n<function_results>"
            text += f"\n<result>{content}</result>"
            if i - caller == len(asked):
                text += "\n</function_results>\n\n" + (THINK if thinking and i >= last_user else THOUGHT)
        else:
            raise Refused(f"unknown role {role}")
    return text
