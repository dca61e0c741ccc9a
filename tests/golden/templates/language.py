"""Small templates, one for each corner of the language; make_cases.py adds what Jinja makes of them."""

# Variables of every case; a case may add its own.
VARIABLES = {
    "name": "World",
    "empty": "",
    "none_value": None,
    "yes": True,
    "no": False,
    "one": 1,
    "seven": 7,
    "half": 0.5,
    "big": 123456789012345678901234567890,
    "numbers": [3, 1, 2],
    "words": ["pear", "Apple", "fig"],
    "mixed": [1, "a", None, True, 2.5, [1], {"k": 1}],
    "person": {"name": "Ann", "age": 30, "tags": ["x", "y"], "items": "shadowed", "_private": 1},
    "people": [
        {"name": "Ann", "age": 30, "city": {"name": "Ulm"}},
        {"name": "bob", "age": 25, "city": {"name": "Bonn"}},
        {"name": "Cy", "age": 30, "city": {"name": "aachen"}},
    ],
    "text": "  some  text with\tspaces \n",
    "lines": "one\ntwo\r\nthree\n\nfive",
    "unicode": "naïve café 你好 🦆 Straße",
    "html": "<a href=\"x\">Tom & 'Jerry'</a>",
    "nested": {"a": [{"b": {"c": "deep"}}]},
}

# Each is a template, or (template, variables of its own).
CASES = [
    # ---- printing values
    "{{ name }}", "{{ empty }}|", "{{ none_value }}", "{{ yes }} {{ no }}", "{{ one }} {{ half }} {{ big }}",
    "{{ missing }}|", "{{ numbers }}", "{{ words }}", "{{ mixed }}", "{{ person }}", "{{ (1, 2) }} {{ (1,) }} {{ () }}",
    "{{ [] }} {{ {} }} {{ [[]] }}", "{{ 'it''s' }}", "{{ ['it\\'s', 'say \"hi\"', 'both \\' and \"'] }}",
    "{{ ['tab\\t', 'nl\\n', 'back\\\\', '\\x00', '\\x7f', 'é', '\\u200b', '\\ue000', '🦆'] }}",
    "{{ {'a': none, 1: true, 2.5: 'x', none: [1]} }}", "{{ unicode }}", "{{ [unicode] }}", "{{ [missing] }}",
    "{{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.0 }} {{ -0.0 }} {{ 1e300 * 1e10 }}",
    "{{ 1_000 }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 1_0.5 }} {{ 1e3 }} {{ 2.5E-3 }} {{ 00 }}",
    "{{ 'a' 'b' \"c\" }}", "{{ '\\u00e9\\x41\\101\\n\\q' }}", "{{ 'a\\\nb' }}", "{{ 1, 2 }}",
    # ---- white space
    "a\n  {% if true %}\nb\n  {% endif %}\nc", "a\n  {%- if true -%}\n  b\n  {%- endif -%}\n  c",
    "a  {% if true %}  b  {% endif %}  c", "a {%+ if true %} b {% endif +%}\n c", "  {{ 1 }}  \n  {{- 2 -}}  \n 3",
    "{# comment #}\nx", "  {# comment #}\n  x", "a {#- comment -#} b", "a\n{# one #}{# two #}\nb", "x\n", "x\n\n", "\n",
    "{% raw %}{{ no }}{% if %}{% endraw %}", "{%- raw -%}  {{ x }}  {%- endraw -%}  y", "a\n  {% raw %}\n b \n  {% endraw %}\nc",
    "a\r\nb\rc{% if true %}\r\nd{% endif %}", "\t{% set x = 1 %}\t{{ x }}", "{{ 'x' }}\n{{ 'y' }}\n",
    "{% for i in [1, 2] %}\n  * {{ i }}\n{% endfor %}\n", "{% for i in [1, 2] -%}\n  * {{ i }}\n{%- endfor %}",
    "   {%- if true %} x {%- endif %}   ", "a\n\n   {% if true %}\n\n b {% endif %}", "{%if true%}x{%endif%}",
    "{% if true %}{# c #}  {% endif %}|", "{{-1}}|{{- 1 }}|{{ 1 -}} |", "line {% if true %}\n  kept{% endif %}",
    "\u00a0{%- if true %}x{% endif -%}\u2003 y", "a {# {{ x }} {% if %} #} b", "{{ \"}}\" }}{{ '%}' }}", "{{ {'a': {'b': 1}} }}",
    "{{ '{{ x }}' }}", "{ { } } {x} %} }} #}",
    # ---- if
    "{% if yes %}a{% elif no %}b{% else %}c{% endif %}", "{% if no %}a{% elif one %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif none_value %}b{% else %}c{% endif %}", "{% if missing %}a{% else %}b{% endif %}",
    "{% if '' or [] or {} or 0 or 0.0 or none %}a{% else %}b{% endif %}", "{% if 'x' and [0] and {'a': 0} %}a{% endif %}",
    "{% if not missing and not none_value %}a{% endif %}", "{% if true: %}x{% endif %}",
    "{{ 'a' if yes else 'b' }}{{ 'a' if no else 'b' }}", "[{{ 'a' if no }}]", "{{ 'a' if no else 'b' if no else 'c' }}",
    "{{ ('a' if no) is defined }}", "{% if 1, 2 %}tuple{% endif %}",
    # ---- for
    "{% for n in numbers %}{{ n }},{% endfor %}", "{% for n in [] %}x{% else %}none{% endfor %}",
    "{% for n in missing %}x{% else %}none{% endfor %}", "{% for c in 'añ🦆' %}[{{ c }}]{% endfor %}",
    "{% for k in person %}{{ k }} {% endfor %}", "{% for k, v in person.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4)] %}{{ a + b }} {% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for n in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for n in numbers %}{{ loop.previtem }}<{{ n }}>{{ loop.nextitem }} {% endfor %}",
    "{% for n in numbers %}{{ loop.previtem is defined }} {{ loop.nextitem is defined }} {% endfor %}",
    "{% for n in numbers %}{{ loop.cycle('odd', 'even') }} {% endfor %}", "{% for n in [1, 1, 2, 2, 1] %}{{ loop.changed(n) }} {% endfor %}",
    "{% for n in numbers if n > 1 %}{{ loop.index }}:{{ n }}/{{ loop.length }} {% endfor %}",
    "{% for n in numbers if n > 9 %}x{% else %}none{% endfor %}", "{% for n in range(5) %}{% if n == 1 %}{% continue %}{% endif %}{% if n == 3 %}{% break %}{% endif %}{{ n }}{% else %}never{% endfor %}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{% if b == 3 %}{% break %}{% endif %}{% endfor %}|{{ loop.index }} {% endfor %}",
    "{% set x = 1 %}{% for n in [1, 2] %}{{ x }}{% set x = x + 10 %}{{ x }} {% endfor %}{{ x }}",
    "{% for x in [1] %}{{ x }}{% endfor %}{{ x }}|", "{% for n in [1, 2] %}{% set last = n %}{% endfor %}{{ last is defined }}",
    "{% set ns = namespace(total=0) %}{% for n in numbers %}{% set ns.total = ns.total + n %}{% endfor %}{{ ns.total }}",
    "{% for k, v in person|dictsort %}{{ k }},{% endfor %}", "{% for n in range(3) %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for n in numbers %}{{ loop['index'] }}{% endfor %}", "{% for n in [1] %}{{ loop.nonsense }}|{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for n in numbers|select('odd') %}{{ n }}{{ loop.last }} {% endfor %}", "{{ loop is defined }}", "{% for n in [5] %}{% for m in [6] %}{% endfor %}{{ loop.index }}{% endfor %}",
    # ---- set, with, blocks
    "{% set x = 5 %}{{ x }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set x %}a {{ name }} b{% endset %}[{{ x }}]",
    "{% set x | upper %}abc{% endset %}{{ x }}", "{% set x | replace('a', 'b') | title %}aaa bab{% endset %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{% if false %}{% set x = 2 %}{% endif %}{{ x is defined }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set name = 'Moon' %}{{ name }}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}",
    "{% filter upper %}abc {{ name }}{% endfilter %}", "{% filter replace('a', '4') | upper %}banana{% endfilter %}",
    "{% generation %}a{{ name }}{% endgeneration %}", "{% generation %}{% set g = 1 %}{% endgeneration %}{{ g is defined }}",
    "{% set ns = namespace(a=1, b='x') %}{% set ns.c = [ns.a] %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d }}|", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}",
    "{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns['x'] }}", "{% set x = [1, 2], 3 %}{{ x }}", "{% set x = 'a' if no else 'b' %}{{ x }}",
    "{% set a %}1{% endset %}{% set b %}{{ a }}2{% endset %}{{ b + '3' }}", "{% set ns = namespace(x=1) %}{% set ns.x, y = 5, 6 %}{{ ns.x }}{{ y }}",
    # ---- macros
    "{% macro m(a, b='B') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{{ m() + 'y' }}{{ m()|upper }}{{ m() is string }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 9 %}{{ x }}{% endmacro %}{{ m() }}{{ x is defined }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}",
    "{% macro m(x=x) %}{{ x is defined }}{% endmacro %}{% set x = 1 %}{{ m() }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, c=3) }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}body {{ name }}{% endcall %}", "{% macro m() %}<{{ caller(1, b=2) }}>{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(a) %}  {{- a -}}  {% endmacro %}[{{ m('x') }}]",
    "{% macro m(l) %}{% for x in l %}{{ x }}{% endfor %}{% endmacro %}{{ m([1, 2]) }}", "{% macro m(*a) %}{% endmacro %}", "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}",
    "{% macro m() %}\n  a\n{% endmacro %}\n[{{ m() }}]", "{% macro m(d) %}{{ d.x }}{% endmacro %}{{ m({'x': 1}) }}{{ m(d={'x': 2}) }}",
    # ---- operators
    "{{ 1 + 2 * 3 - 4 / 2 }}", "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}", "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2.0 ** 0.5 }}",
    "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'x' * 0 }}{{ 'x' * -1 }}", "{{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }}", "{{ 1 ~ 'a' ~ none ~ true ~ 1.5 ~ [1] ~ missing }}",
    "{{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ none == false }} {{ [1, 2] == [1, 2] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ (1,) == [1] }}", "{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }}",
    "{{ 1 < 2 }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ [1, 2] < [1, 3] }} {{ 1 <= 1.0 }} {{ 2 > 1 >= 1 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }}", "{{ 'b' in 'abc' }} {{ '' in 'abc' }} {{ 2 in numbers }} {{ 'age' in person }} {{ 'x' not in words }} {{ 1 in missing }}",
    "{{ none in mixed }} {{ [1] in mixed }} {{ 2.5 in mixed }}", "{{ 'a' or 'b' }} {{ '' or 'b' }} {{ 'a' and 'b' }} {{ 0 and 'b' }} {{ not 1 }}", "{{ not yes or yes }} {{ yes and not no }} {{ not (yes and no) }}", "{{ +1 }} {{ --1 }} {{ -half }} {{ -(1 + 2) }} {{ +true }}",
    "{{ 1 + 1 ~ 2 * 3 }}", "{{ 'a' ~ 1 + 2 }}", "{{ (1, 2) + (3,) }}", "{{ true + true }} {{ true * 3 }}", "{{ 10 / 4 }} {{ 4 / 2 }} {{ 1 / 3 }}", "{{ 'é' < 'z' }} {{ 'ab' <= 'abc' }}", "{{ 1.5 + 1 }} {{ 0.1 + 0.2 }} {{ 3 - 0.5 }}",
    "{{ '%s is %d years, %.2f, %5s|%-5s|%05d, %x, %r, 100%%' % ('Ann', 30, 1.5, 'a', 'b', 42, 255, 'q') }}", "{{ '%(a)s %(b)s' % {'a': 1, 'b': 2} }}", "{{ '%s' % 5 }} {{ '%s' % [1, 2] }} {{ '%d' % 3.9 }} {{ '%+d % d' % (1, 2) }} {{ '%e' % 12345.678 }} {{ '%g' % 0.0001 }}",
    # ---- attributes, items, slices
    "{{ person.name }} {{ person['age'] }} {{ person['tags'][0] }} {{ person.tags[-1] }}", "{{ person.missing }}|{{ person['missing'] }}|", "{{ numbers[0] }} {{ numbers[-1] }} {{ numbers[9] }}| {{ numbers['x'] }}|", "{{ numbers.0 }} {{ nested.a.0.b.c }}",
    "{{ name[0] }} {{ name[-1] }} {{ unicode[-6] }} {{ name[99] }}|", "{{ numbers[1:] }} {{ numbers[:-1] }} {{ numbers[::-1] }} {{ numbers[::2] }} {{ numbers[-2:] }} {{ numbers[5:] }} {{ numbers[:] }}", "{{ name[1:3] }} {{ name[::-1] }} {{ unicode[6:10] }} {{ name[-3:] }} {{ name[::2] }} {{ name[:99] }} {{ unicode[::-3] }}",
    "{{ numbers[2:0:-1] }} {{ numbers[-1:-3:-1] }} {{ numbers[10:0:-2] }}", "{{ (1, 2, 3)[1:] }} {{ range(5)[2] }} {{ range(5)[-1] }}", "{{ numbers[true] }} {{ none_value['x'] }}| {{ one.x }}| {{ name.x }}|", "{{ person.items is string }} {{ person['items'] }}", "{{ person.get('name') }} {{ person.get('x') }} {{ person.get('x', 'd') }} {{ person.get('x', default='d') if no else '' }}",
    "{{ person.keys()|list }} {{ person.values()|list|length }} {{ person.items()|list|first }}", "{{ 'a' in person.keys() }} {{ 'Ann' in person.values() }} {{ person.keys()|length }}", "{{ person._private }} {{ numbers.append is defined }} {{ [].append }}|", "{{ {'a': 1}['a'] }} {{ {1: 'x'}[1] }} {{ {1: 'x'}[true] }} {{ {none: 2}[none] }}", "{{ [1, 2, 1].count(1) }} {{ [5, 6].index(6) }} {{ (1, 2).index(2) }}",
    "{{ {'a': 1, 'a': 2} }} {{ {'b': 1, 'a': 2, 'b': 3} }}", "{{ nested['a'][0]['b']['c'] }}", "{{ numbers[1:2] + numbers[0:1] }}", "{{ messages[-1].content }}", "{{ people[0].city.name }} {{ people[0]['city']['name'] }}",
    # ---- string methods
    "[{{ text.strip() }}] [{{ text.lstrip() }}] [{{ text.rstrip() }}]", "{{ 'xxaxx'.strip('x') }} {{ 'abcab'.lstrip('ab') }} {{ 'abcab'.rstrip('ba') }}", "{{ text.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b  c '.split(' ') }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a b c '.split(none, 1) }}",
    "{{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ 'abc'.rsplit('x') }}", "{{ 'a</think>b</think>c'.split('</think>')[-1] }} {{ 'abc'.split('</think>')[0] }}", "{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ ''.splitlines() }} {{ 'a\\x0bb\\u2028c'.splitlines() }}", "{{ name.startswith('Wo') }} {{ name.endswith('ld') }} {{ name.startswith(('x', 'W')) }} {{ name.startswith('or', 1) }} {{ name.endswith('l', 0, -1) }}",
    "{{ 'banana'.replace('a', 'o') }} {{ 'banana'.replace('a', 'o', 1) }} {{ 'abc'.replace('', '-') }} {{ 'ß'.replace('ß', 'ss') }}", "{{ name.upper() }} {{ name.lower() }} {{ 'hello world'.title() }} {{ \"it's a-b\".title() }} {{ 'hELLO wORLD'.capitalize() }} {{ 'aB'.swapcase() }}", "{{ unicode.upper() }}", "{{ 'ÀÉÎ'.lower() }} {{ 'привет мир'.title() }} {{ 'ǆ'.capitalize() }}", "{{ 'banana'.find('na') }} {{ 'banana'.rfind('na') }} {{ 'banana'.find('x') }} {{ unicode.find('你') }} {{ 'banana'.find('a', 2) }} {{ 'banana'.find('n', -2) }} {{ 'abc'.find('', 3) }} {{ 'abc'.find('', 4) }}", "{{ 'banana'.index('n') }} {{ 'banana'.count('a') }} {{ 'aaaa'.count('aa') }} {{ 'abc'.count('') }}",
    "{{ ', '.join(words) }} {{ ''.join(['a']) }} {{ '-'.join('abc') }} {{ '-'.join([]) }}|", "{{ '{} {}'.format('a', 1) }} {{ '{0}{1}{0}'.format('x', 'y') }} {{ '{a}'.format(a=2) }} {{ '{{}}'.format() }} {{ '{!r} {:>5}|{:<5}|{:^5}|{:*^7}'.format('q', 'a', 'b', 'c', 'd') }}", "{{ '{:.2f} {:5d}|{:05d} {:,} {:x} {:+} {:%} {:.1%} {:e}'.format(3.14159, 42, 42, 1234567, 255, 3, 0.5, 0.256, 12345.0) }}", "{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ ' '.isspace() }} {{ 'ab'.islower() }} {{ 'AB'.isupper() }} {{ ''.isalpha() }} {{ 'é'.isalpha() }} {{ 'a b'.isalpha() }} {{ '1'.islower() }}", "{{ 'a'.center(4) }}| {{ 'ab'.center(5) }}| {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3, '.') }} {{ '-5'.zfill(4) }} {{ 'abc'.center(2) }}", "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}", "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}", "{{ 'x'.upper is callable }}",
    # ---- filters
    "{{ name|upper }} {{ name|lower }} {{ 'hello world-wide (web)'|title }} {{ 'aBC dEF'|capitalize }}", "[{{ text|trim }}] [{{ 'xax'|trim('x') }}] [{{ missing|trim }}] [{{ 5|trim }}]", "{{ name|length }} {{ numbers|length }} {{ person|length }} {{ unicode|length }} {{ missing|length }} {{ words|count }}", "{{ numbers|first }} {{ numbers|last }} {{ name|first }} {{ name|last }} {{ []|first }}| {{ person|first }}", "{{ words|join(', ') }} {{ numbers|join }} {{ people|join(',', attribute='name') }} {{ people|join(',', 'city.name') }} {{ [none, true, 1.5]|join('-') }} {{ 'abc'|join('.') }}", "{{ missing|default('d') }} {{ none_value|default('d') }} {{ none_value|default('d', true) }} {{ ''|default('d', boolean=true) }} {{ missing|default }}| {{ missing|d(1) }} {{ person.x|default('y') }}", "{{ 'banana'|replace('a', 'o') }} {{ 'banana'|replace('a', 'o', 2) }} {{ 112|replace(1, 3) }}", "{{ numbers|sort }} {{ numbers|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='age,name')|map(attribute='name')|list }} {{ people|sort(attribute='city.name')|map(attribute='name')|list }} {{ people|sort(true, attribute='age')|map(attribute='name')|list }}",
    "{{ person|dictsort|map('first')|list }} {{ {'b': 1, 'A': 2}|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'a': 2}|dictsort(false, 'key', true) }}", "{{ [1, 1, 2, 'a', 'A']|unique|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }} {{ ['a', 'A']|unique(true)|list }}", "{{ numbers|reverse|list }} {{ 'añ🦆'|reverse }} {{ (1, 2)|reverse|list }}", "{{ words|map('upper')|list }} {{ words|map('replace', 'p', 'q')|list }} {{ people|map(attribute='age')|sum }} {{ people|map(attribute='x', default='-')|join }} {{ missing|map('upper')|list }} {{ numbers|map('string')|join }}", "{{ numbers|select('odd')|list }} {{ mixed|select|list }} {{ mixed|select('string')|list }} {{ numbers|select('greaterthan', 1)|list }} {{ numbers|reject('odd')|list }} {{ mixed|reject('none')|list|length }} {{ words|select('in', ['fig'])|list }}", "{{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|join(',') }} {{ people|rejectattr('age', '==', 30)|map(attribute='name')|join(',') }} {{ people|selectattr('x')|list }} {{ people|selectattr('city.name', 'eq', 'Ulm')|list|length }} {{ people|selectattr('x', 'undefined')|list|length }}", "{{ numbers|min }} {{ numbers|max }} {{ words|min }} {{ words|max }} {{ people|max(attribute='age') }} {{ []|min }}| {{ numbers|sum }} {{ people|sum('age') }} {{ people|sum(attribute='age', start=100) }} {{ []|sum }}",
    "{{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ 3.9|int }} {{ '0x1f'|int(base=16) }} {{ '1f'|int(0, 16) }} {{ none|int }} {{ true|int }} {{ ' 7 '|int }} {{ '1e3'|int }} {{ '-5'|int }} {{ '+5'|int }} {{ ''|int }}", "{{ '1.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ 'x'|float(2.5) }} {{ '1e3'|float }} {{ 'inf'|float }} {{ none|float }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 42|round }} {{ 1.25|round(1) }} {{ 42.55|round|int }} {{ 2.345|round(2, 'ceil') }} {{ -1.5|round }} {{ 3|round(1, 'floor') }}", "{{ -5|abs }} {{ -1.5|abs }} {{ true|abs }}", "{{ 5|string + 'x' }} {{ none|string }} {{ [1]|string }} {{ 1.0|string }}", "{{ html|e }} {{ html|escape }} {{ html|safe }} {{ html|e|e }} {{ html|e|string }} {{ 5|e }}", "{{ ('<'|safe) + '<' }} {{ '<' + ('<'|safe) }} {{ ('<'|safe) ~ '<' }} {{ ('a'|safe) * 2 }} {{ ['<'|safe] }} {{ html|forceescape }} {{ ('<b>'|safe) == '<b>' }}", "{{ 'a\\nb\\n\\nc'|indent }}| {{ 'a\\nb'|indent(2, true) }}| {{ 'a\\n\\nb'|indent(2, blank=true) }}| {{ 'a\\nb'|indent('> ', first=true) }}| {{ ''|indent }}| {{ 'a\\n'|indent(2) }}|", "{{ 'x'|center(5) }}|{{ 'abc'|center(4) }}|", "{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar'|truncate(5) }} {{ 'foo bar baz qux'|truncate(11, leeway=0, end='!') }}", "{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ []|batch(3)|list }}", "{{ person|items|list|first }} {{ missing|items|list }}", "{{ 'abc'|list }} {{ person|list }} {{ range(3)|list }} {{ (1, 2)|list }}", "{{ '%s and %s'|format('a', 'b') }} {{ '%(x)s'|format(x=1) }} {{ '%d%%'|format(5) }}",
    # ---- tojson
    "{{ person|tojson }}", "{{ mixed|tojson }} {{ none|tojson }} {{ true|tojson }} {{ 1.0|tojson }} {{ 'a\"b\\\\c/\\n\\t\\x01\\x7f<>&' | tojson }}", "{{ unicode|tojson }} {{ unicode|tojson(ensure_ascii=true) }} {{ '\\x7f🦆'|tojson(true) }}", "{{ person|tojson(indent=2) }}", "{{ nested|tojson(indent=4) }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }}", "{{ {'a': [1, 2]}|tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ {'a': [1]}|tojson(indent=1, separators=(', ', ' = ')) }}", "{{ {1: 'a', true: 'b', none: 'c', 2.5: 'd'}|tojson }} {{ (1, 2)|tojson }} {{ big|tojson }}", "{{ person|tojson(indent='\\t') }}", "{{ 1e16|tojson }} {{ 1e-7|tojson }} {{ 123456789012345680.0|tojson }} {{ -0.0|tojson }}", "{{ {'a': 1}|tojson(indent=0) }}", "{{ [{'type': 'object', 'properties': {}}]|tojson|length }}", ("{{ values|tojson }}|{{ values }}", {"values": [1.5e300, -0.0, 1e22, 12345678901234567890, 5e-324, 0.1, 100.0, 1e-5]}),
    # ---- tests
    "{{ name is defined }} {{ missing is defined }} {{ missing is undefined }} {{ person.x is defined }} {{ person.x is not defined }}", "{{ none is none }} {{ missing is none }} {{ 0 is none }} {{ none_value is not none }}", "{{ 'a' is string }} {{ 1 is string }} {{ missing is string }} {{ {} is mapping }} {{ [] is mapping }} {{ [] is sequence }} {{ 'a' is sequence }} {{ {} is sequence }} {{ 1 is sequence }} {{ missing is sequence }} {{ (1,) is sequence }}", "{{ [] is iterable }} {{ 'a' is iterable }} {{ {} is iterable }} {{ 1 is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ range(2) is iterable }} {{ range(2) is sequence }} {{ person.items() is sequence }} {{ numbers|map('string') is sequence }} {{ numbers|map('string') is iterable }}", "{{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ '1' is number }} {{ 1 is integer }} {{ 1.0 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ 1 is float }} {{ big is integer }}", "{{ true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ no is not true }}", "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 2.0 is even }}", "{{ 1 is eq 1 }} {{ 1 is equalto(1.0) }} {{ 1 is ne 2 }} {{ 2 is gt 1 }} {{ 2 is lt 1 }} {{ 2 is ge(2) }} {{ 1 is lessthan 2 }} {{ 2 is greaterthan 1 }} {{ 1 is le 1 }}", "{{ 'a' is in ['a'] }} {{ 'a' is in 'bac' }} {{ 1 is not in [2] }} {{ 'age' is in person }}", "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aB' is lower }} {{ 5 is lower }}", "{{ none is sameas none }} {{ true is sameas true }} {{ true is sameas 1 }} {{ range is callable }} {{ name is callable }} {{ html|e is escaped }} {{ html is escaped }}", "{{ yes is true and no is false }} {{ not name is none }} {{ name is not string or yes }} {{ 1 is number and 'x' }}", "{{ 'a' if name is defined else 'b' }} {{ numbers is defined and numbers|length > 2 }}",
    # ---- functions
    "{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(-2, 2)|list }}", "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1), ('b', 2)]) }} {{ dict() }}", "{{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%d %b %Y, %A %B %j %I %p %y %%') }} {{ strftime_now('') }}|", "{{ raise_exception('stop: ' ~ name) }}", "{% if no %}{{ raise_exception('never') }}{% endif %}ok", "{{ namespace(a=1).a }}",
    # ---- generators are read once
    "{% set g = numbers|map('string') %}{{ g|list }}{{ g|list }}", "{% set g = numbers|select('odd') %}{{ g|first }}{{ g|list }}", "{% set g = numbers|map('string') %}{{ '1' in g }}{{ g|list }}", "{% if numbers|select('gt', 9) %}a generator is true{% endif %}", "{% set v = person.values() %}{{ v|list|length }}{{ v|list|length }}", "{{ (numbers|map('string')|list)[0] }}", "{% set r = numbers|reverse %}{{ r|list }}{{ r|list }}",
    # ---- errors
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ person.x.y }}", "{{ missing() }}", "{{ person.x() }}", "{{ missing + 1 }}", "{{ 1 + missing }}", "{{ -missing }}", "{{ missing < 1 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] + (2,) }}", "{{ none + 'x' }}", "{{ 'a' - 'b' }}", "{{ 'a' * 'b' }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 'a' < 1 }}", "{{ none < 1 }}", "{{ [1] < 'a' }}", "{{ 1 in 5 }}", "{{ 1 in 'abc' }}", "{{ missing in 'abc' }}", "{{ [] in {} }}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{{ 5|length }}", "{{ none|length }}", "{{ numbers|map('string')|length }}", "{{ numbers|map('string')|last }}", "{{ missing|tojson }}", "{{ [missing]|tojson }}", "{{ range(3)|tojson }}", "{{ numbers|map('string')|tojson }}", "{{ {(1, 2): 1}|tojson }}", "{{ 'x'|nofilter }}", "{{ 'x' is notest }}", "{{ name.nomethod() }}", "{{ numbers.append(1) }}", "{{ person.pop('name') }}", "{{ person.update({}) }}", "{{ name() }}", "{{ 5() }}", "{{ 'a'.join([1]) }}", "{{ 'a'.split('') }}", "{{ 'abc'.index('x') }}", "{{ [1].index(2) }}", "{{ 'abc'.startswith(1) }}", "{{ numbers|sort(attribute='x') if no else [1, 'a']|sort }}", "{{ [1, 'a']|max }}", "{{ ['a', 'b']|sum }}", "{{ {[]: 1} }}", "{{ numbers[none:'a'] }}", "{{ [1][::0] }}", "{{ '%d' % 'a' }}", "{{ '%s %s' % ('a',) }}", "{{ '%s' % ('a', 'b') }}", "{{ '{} {}'.format(1) }}", "{{ '{x}'.format(y=1) }}", "{{ missing|int }}", "{{ missing|abs }}", "{{ 'x'|round }}", "{{ 5|items|list }}", "{{ range(0, 10, 0) }}", "{{ range(1000000) }}", "{{ range('a') }}", "{{ range() }}", "{% set name.x = 1 %}", "{% set missing.x = 1 %}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}{% endmacro %}{% call m(1) %}{% endcall %}", "{{ person.nokey.x }}", "{{ one.x.y }}", "{{ dict(1) }}", "{% set a, b = 1 %}", "{% set a, b = [1, 2, 3] %}",
    # ---- wrong syntax
    "{{", "{{ }}", "{% %}", "{{ 1", "{% if %}x{% endif %}", "{% if true %}", "{% for x in %}{% endfor %}", "{% for in y %}{% endfor %}", "{% endif %}", "{% unknown %}", "{% else %}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 1) }}", "{{ {1: } }}", "{{ 'abc }}", "{# open", "{% raw %}x", "{{ a b }}", "{{ 1 2 }}", "{{ a..b }}", "{{ a. }}", "{{ a[] }}", "{{ a| }}", "{{ a is }}", "{{ a is defined is defined }}", "{% set = 1 %}", "{% set 1 = 1 %}", "{% set true = 1 %}", "{% set x %}", "{% macro %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(1) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ f(*a, *b) }}", "{% break %}", "{% for x in y %}{% endif %}", "{{ not }}", "{{ 1 if }}", "{{ ? }}", "{{ a ! b }}", "{{ '\\xZZ' }}", "{% do x %}", "{{ x = 1 }}", "{% call x %}{% endcall %}", "{{ 012 }}", "{% for x in y recursive z %}{% endfor %}", "{% filter %}{% endfilter %}", "{% with a %}{% endwith %}", "{% if a %}{% elif %}{% endif %}", "{{ a.b.1c }}",
]

# Jinja knows these and the interpreter refuses them by name.
UNSUPPORTED = [
    ("{% block a %}{% endblock %}", "block"), ("{% extends 'a' %}", "extends"), ("{% include 'a' %}", "include"), ("{% import 'a' as b %}", "import"), ("{% from 'a' import b %}", "from"), ("{% for x in [] recursive %}{% endfor %}", "recursive"), ("{% print 1 %}", "print"), ("{% autoescape true %}{% endautoescape %}", "autoescape"),
    ("{{ 'a b'|wordcount }}", "wordcount"), ("{{ html|striptags }}", "striptags"), ("{{ 'a'|urlencode }}", "urlencode"), ("{{ people|groupby('age')|list }}", "groupby"), ("{{ [1, 2]|slice(2)|list }}", "slice"), ("{{ person|xmlattr }}", "xmlattr"), ("{{ 'a'|wordwrap }}", "wordwrap"), ("{{ 5|filesizeformat }}", "filesizeformat"), ("{{ person|pprint }}", "pprint"), ("{{ 'a'|attr('upper') }}", "attr"), ("{{ 'upper' is filter }}", "filter"),
    ("{{ cycler('a') }}", "cycler"), ("{{ joiner() }}", "joiner"), ("{{ lipsum() }}", "lipsum"), ("{{ 'a'.encode() }}", "encode"), ("{{ 'a'.casefold() }}", "casefold"), ("{{ {}.fromkeys([1]) }}", "fromkeys"), ("{{ one.real }}", "real"), ("{{ ''.__class__ }}", "__class__"), ("{{ range(3) }}", "range"), ("{{ person.items() }}", "dict"), ("{{ numbers|map('string') }}", "generator"), ("{{ namespace() }}", "Namespace"), ("{% macro m() %}{% endmacro %}{{ m }}", "function"), ("{{ range }}", "function"), ("{% for x in [1] %}{{ loop }}{% endfor %}", "LoopContext"),
    ("{{ 9223372036854775807 + 1 }}", "64 bits"), ("{{ 2 ** 64 }}", "64 bits"), ("{{ 99999999999999999999 }}", "64 bits"), ("{{ big + 1 }}", "64 bits"), ("{{ 'ŉ'.upper() }}", "U+0149"), ("{{ 'ΟΔΟΣ'.lower() }}", "U+03A3"), ("{{ '{0.real}'.format(1) }}", "attributes"), ("{{ '%c' % 65 }}", "'c'"), ("{{ strftime_now('%s') }}", "%s"), ("{{ größe }}", "ASCII"), ("{{ 'a' is sameas 'a' }}", "sameas"), ("{{ range(9)[1:3] }}", "slice"), ("{{ ('a'|safe).upper() }}", "safe"), ("{{ 15|round(-1) }}", "round"), ("{{ '1_000'|int }}", "1_000"), ("{{ '½'.isdigit() }}", "isdigit"), ("{% macro m(caller) %}{% endmacro %}", "caller"),
]
