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

test("templates that loop, recurse or grow without end are stopped", () => {
  const grow = (first: string): string =>
    `{% set n = namespace(x=${first}) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x | length }}`;
  for (const source of [
    "{% for i in range(1000000000) %}{% endfor %}",
    "{% for i in range(9999) %}{% for j in range(9999) %}{% for k in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    grow("[1, 2]"),
    grow("'ab'"),
    "{{ range(0, 5, 0) }}",
    `{{ ${"(".repeat(5000)}1${")".repeat(5000)} }}`,
  ]) {
    rejects("BAD_FILE", () => new ChatTemplate(source).render(chat), /chat template/i);
  }
});
