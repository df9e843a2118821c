/** Chat templates: what they write, the answers that they mark, and templates that would never end. */

import assert from "node:assert/strict";
import test from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { ChatTemplate } from "./index.js";

const chat = [
  { role: "user", content: "2+2?" },
  { role: "assistant", content: "4" },
  { role: "user", content: "sure?" },
  { role: "assistant", content: "yes" },
];

const chatMl = `{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ message.content + '<|im_end|>' }}{%- endgeneration %}{{ '\\n' }}
    {%- else %}
        {{- message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}`;

test("a template writes a chat, with the beginning of an answer if asked", () => {
  const template = new ChatTemplate(chatMl);
  assert.equal(
    template.render(chat.slice(0, 1), { addGenerationPrompt: true }),
    "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n",
  );
});

test("the answers that a template marks are known by their place in the text", () => {
  const { text, answers } = new ChatTemplate(chatMl).renderWithAnswers(chat);
  assert.deepEqual(
    answers.map(({ start, end }) => text.slice(start, end)),
    ["4<|im_end|>", "yes<|im_end|>"],
  );
  assert.ok(!/[\u{10fff0}\u{10fff1}]/u.test(text));
  const forged = [{ role: "user", content: "\u{10fff1}" }];
  rejects("BAD_ARGUMENT", () => new ChatTemplate(chatMl).renderWithAnswers(forged), /not in pairs/);
});

test("a template has its special tokens, tools and variables", () => {
  const template = new ChatTemplate(
    "{{ bos_token }}{{ tools | tojson }}{{ mode }}{{ pad_token is defined }}",
    {
      bos_token: "<s>",
    },
  );
  const text = template.render([], { tools: [{ name: "f" }], variables: { mode: "x" } });
  assert.equal(text, '<s>[{"name": "f"}]xfalse');
});

test("what a template raises reaches the caller, and so does an error in it", () => {
  const raising = new ChatTemplate("{{ raise_exception('Roles must alternate') }}");
  rejects("BAD_ARGUMENT", () => raising.render(chat), /rejects the messages: Roles must alternate/);
  rejects("BAD_FILE", () => new ChatTemplate("{% for %}"), /can't be read/);
  rejects("BAD_ARGUMENT", () => new ChatTemplate("{{ none + 1 }}").render(chat), /failed/);
});

/** Fills `n.x` with a text or a list that doubles so often. */
const grow = (count: number, first: string): string =>
  `{% set n = namespace(x=${first}) %}{% for i in range(${count}) %}{% set n.x = n.x + n.x %}{% endfor %}`;

/** Nests `n.x` in lists so often, by this list. */
const nest = (count: number, list: string): string =>
  `{% set n = namespace(x='abcdefgh') %}{% for i in range(${count}) %}{% set n.x = ${list} %}{% endfor %}`;

test("templates that loop or recurse without end are stopped", () => {
  for (const source of [
    "{% for i in range(1000000000000) %}{% endfor %}",
    "{% for i in range(9999) %}{% for j in range(9999) %}{% for k in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% for i in range(3) %}{{ f(n + 1) }}{% endfor %}{% endmacro %}{{ f(0) }}",
    "{{ range(0, 5, 0) }}",
    `{{ ${"(".repeat(5000)}1${")".repeat(5000)} }}`,
    `{{ 1${"+1".repeat(5000)} }}`,
    "{% if x %}".repeat(20_000),
  ]) {
    rejects(
      "BAD_FILE",
      () => new ChatTemplate(source, {}, "x.jinja").render(chat),
      /chat template of x.jinja/,
    );
  }
});

test("values that would fill the memory are not made", () => {
  const cases: readonly (readonly [source: string, message: RegExp])[] = [
    [`${grow(60, "[1, 2]")}{{ n.x | length }}`, /list of \d+ items/],
    [`${grow(60, "'ab'")}{{ n.x | length }}`, /text of \d+ characters/],
    [`${nest(60, "[n.x, n.x]")}{{ n.x }}`, /text of/],
    [`${nest(60, "{'a': n.x, 'b': n.x}")}{{ 'x' ~ n.x }}`, /text of/],
    [`${nest(60, "[n.x, n.x]")}{{ 'x' + n.x }}`, /text of/],
    [`${nest(60, "[n.x, n.x]")}{{ n.x | string }}`, /text of/],
    [`${nest(60, "[n.x, n.x]")}{{ n.x | tojson }}`, /text of/],
    ["{% set n = namespace(x=1) %}{% set n.x = n %}{{ n }}", /text of/],
    ["{{ range(9999) | list | tojson(indent=50000) | length }}", /text of/],
    ["{{ [1, 2] | tojson(separators=('x' | indent(4000000, true), 'y')) | length }}", /text of/],
    [`${grow(17, "'aa'")}{{ range(1000) | join(n.x) | length }}`, /text of/],
    [`${grow(17, "'aa'")}{% filter join(n.x) %}{{ n.x }}{% endfilter %}`, /text of/],
    [`${grow(19, "'\\n'")}{{ n.x | indent(500) | length }}`, /text of/],
    [`${grow(20, "'a'")}{{ n.x.replace('a', 'bbbbbb') | length }}`, /text of/],
    [`${grow(20, "'a'")}{{ n.x['replace']('', 'bbbbbb') | length }}`, /text of/],
    [`${grow(20, "'a'")}{{ n.x | replace('a', 'bbbbbb') | length }}`, /text of/],
    [`${grow(20, "'aa'")}{{ n.x.split('a') | length }}`, /list of 2097152 items/],
    [`${grow(18, "'a '")}{{ n.x.split() | length }}`, /list of 262144 items/],
    [
      `${grow(12, "[1, 2]")}{% for i in range(9999) %}{% set n.x = n.x + [n.x] %}{% endfor %}`,
      /many large values/,
    ],
  ];
  for (const [source, message] of cases)
    rejects("BAD_FILE", () => new ChatTemplate(source).render(chat), message);
});

test("the same filters and methods work on values of usual sizes", () => {
  for (const [source, text] of [
    ["{{ [1, ['a', none]] | string }}{{ 'x' ~ 1 }}{{ {'a': 1} }}", '[1, ["a", null]]x1{"a": 1}'],
    ["{{ {'b': [1], 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": [\n  1\n ]\n}'],
    ["{{ [1, 2, 'x'] | join('-') }}{{ 'ab' | join('-') }}", "1-2-xa-b"],
    ["{{ 'a\\nb' | indent(2) }}", "a\n  b"],
    ["{{ 'aba'.replace('a', 'xx') }}{{ 'aba' | replace('a', 'c', 1) }}", "xxbxxcba"],
    ["{{ 'a b  c'.split() | length }}{{ 'a,b'['split'](',')[1] }}{{ 'A'.lower() }}", "3ba"],
    [
      "{% for i in range(500) %}{% if i % 2 %}{% continue %}{% endif %}{{ i % 10 }}{% endfor %}",
      "02468".repeat(50),
    ],
  ] as const)
    assert.equal(new ChatTemplate(source).render(chat), text, source);
});
