/** Text data: rows and labels of texts, prompts and chats, packing, held-out texts, and files that can't be read. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { makeFolder } from "../../../test/support/folders.js";
import { rejectsLater } from "../../../test/support/rejects.js";
import { ByteTokenizer } from "../tokenizer/index.js";
import { loadTextData, type TextData, type TextDataOptions } from "./index.js";
import { planPackedRows } from "./plan-rows.js";

const folder = makeFolder();
const chatTemplate =
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
const tokenizer = new ByteTokenizer({ eosToken: "</s>", chatTemplate });

function write(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const lines = (...values: readonly unknown[]): string =>
  values.map((value) => `${JSON.stringify(value)}\n`).join("");

function load(content: string, options: Partial<TextDataOptions> = {}, name = "a.jsonl"): Promise<TextData> {
  return loadTextData(write(name, content), { tokenizer, length: 64, ...options });
}

/** The texts of rows, and of their labels; "·" is a token that does not count. */
function show({ train }: TextData, row = 0): readonly string[] {
  const [ids, labels] = train.get(row);
  return [
    tokenizer.decode(Array.from(ids.values, Number)).replace(/(<\/s>)+$/, "</s>"),
    Array.from(labels.values, Number)
      .map((id) => (id === -100 ? "·" : tokenizer.decode([id])))
      .join("")
      .replace(/·+$/, ""),
  ];
}

test("a text counts from its second token to the end token, which is added", async () => {
  const data = await load(lines({ text: "héllo" }, { text: "" }).replace("\n", "\n\r\n \n"));
  assert.deepEqual(show(data), ["héllo</s>", "·\ufffd\ufffdllo</s>"]);
  assert.deepEqual(data.figures, { texts: 1, tokens: 7, countedTokens: 6, truncated: 0, dropped: 1 });
});

test("of a prompt and its completion the completion counts, or all of both", async () => {
  const example = lines({ prompt: "2+2=", completion: "4" });
  assert.deepEqual(show(await load(example)), ["2+2=4</s>", "····4</s>"]);
  assert.deepEqual(show(await load(example, { lossOn: "all" })), ["2+2=4</s>", "·+2=4</s>"]);
  const messages = {
    prompt: [{ role: "user", content: "a" }],
    completion: [{ role: "assistant", content: "b" }],
  };
  assert.deepEqual(show(await load(lines(messages)))[1], `${"·".repeat(20)}b</s>`);
});

const chat = {
  messages: [
    { role: "user", content: "2+2?" },
    { role: "assistant", content: "4" },
    { role: "user", content: "ok?" },
    { role: "assistant", content: "yes" },
  ],
};

test("of a chat the assistant's answers count, up to the token that ends them", async () => {
  const [text = "", counted] = show(await load(lines(chat), { length: 80 }));
  assert.equal(text, "<user>2+2?</s>\n<assistant>4</s>\n<user>ok?</s>\n<assistant>yes</s>\n</s>");
  assert.equal(counted?.replaceAll("·", ""), "4</s>yes</s>");
  // In each answer, labels are at the place of the answer.
  assert.equal(counted?.indexOf("4"), "<user>2+2?".length + 1 + "\n<assistant>".length);
});

test("a template that writes earlier answers in another way makes a text of each answer, as the model will see it", async () => {
  // The reasoning of earlier answers is left out.
  const reasoning =
    "{% for m in messages %}<{{ m.role }}>{% if loop.last and m.role == 'assistant' %}think {% endif %}{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const other = new ByteTokenizer({ eosToken: "</s>", chatTemplate: reasoning });
  const data = await load(lines(chat), { tokenizer: other, packing: false, length: 80 });
  assert.deepEqual(
    [0, 1].map((row) => show(data, row)[1]?.replaceAll("·", "")),
    ["think 4</s>", "think yes</s>"],
  );
  assert.match(show(data, 1)[0] ?? "", /<assistant>4<\/s>.*think yes/);
});

test("a template that marks answers says what counts, and one that hides their start is an error with the line", async () => {
  const marking =
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  const data = await load(lines(chat), { tokenizer: new ByteTokenizer({ chatTemplate: marking }) });
  assert.equal(show(data)[1], "····4···yes");
  const hiding = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}";
  await rejectsLater(
    "BAD_FILE",
    load(`\n${lines(chat)}`, { tokenizer: new ByteTokenizer({ chatTemplate: hiding }) }),
    /a\.jsonl, line 2: .*generation/,
  );
});

test("packed rows keep texts apart by positions and segments, and have no text twice", async () => {
  const texts = Array.from({ length: 40 }, (_, index) => "x".repeat(1 + ((index * 7) % 15)) + String(index));
  const { train, figures } = await load(lines(...texts.map((text) => ({ text }))), { length: 20 });
  assert.equal(train.columns.length, 4);
  const found: string[] = [];
  for (let row = 0; row < train.rows; row++) {
    const [ids, labels, positions, segments] = train.get(row).map(({ values }) => Array.from(values, Number));
    for (let segment = 1; segments?.includes(segment); segment++) {
      const first = segments.indexOf(segment);
      const last = segments.lastIndexOf(segment);
      found.push(tokenizer.decode(ids?.slice(first, last) ?? []));
      assert.deepEqual(
        positions?.slice(first, last + 1),
        Array.from({ length: last - first + 1 }, (_, at) => at),
      );
      assert.deepEqual(labels?.slice(first, last + 1), [-100, ...(ids?.slice(first + 1, last + 1) ?? [])]);
    }
    const padding = segments?.indexOf(0) ?? -1;
    if (padding >= 0) assert.ok(labels?.slice(padding).every((label) => label === -100));
  }
  assert.deepEqual(found.sort(), [...texts].sort());
  assert.ok(
    train.rows <= Math.ceil(figures.tokens / 20) + 1,
    `${train.rows} rows for ${figures.tokens} tokens`,
  );
});

test("rows are filled by best fit", () => {
  const { rows, rowOf } = planPackedRows(Uint32Array.of(3, 100, 60, 40, 97, 1), 100);
  assert.equal(rows, 4);
  // 3 and 97, 100, 60 and 40, 1; rows are in the order of their first texts.
  assert.deepEqual([...rowOf], [0, 1, 2, 2, 0, 3]);
});

test("long texts are split, cut or left out", async () => {
  const long = lines({ text: "0123456789" }, { text: "ab" });
  const rows = async (
    longTexts?: "split" | "truncate" | "drop",
  ): Promise<readonly (string | undefined)[]> => {
    const data = await load(long, { length: 4, packing: false, ...(longTexts && { longTexts }) });
    return Array.from({ length: data.train.rows }, (_, row) => show(data, row)[0]);
  };
  assert.deepEqual(await rows(), ["0123", "4567", "89</s>", "ab</s>"]);
  assert.deepEqual(await rows("truncate"), ["0123", "ab</s>"]);
  assert.deepEqual(await rows("drop"), ["ab</s>"]);
  const cut = load(lines({ prompt: "long prompt", completion: "x" }), { length: 8 });
  await rejectsLater("BAD_FILE", cut, /1 texts were left out, and 1 were cut to 8 tokens/);
});

test("a text file is one text in rows of the whole length, and its end is held out", async () => {
  const text = Array.from({ length: 100 }, (_, index) => `line ${index}\n`).join("");
  const { train, heldOut, digest } = await load(text, { length: 50, heldOut: 0.2 }, "a.txt");
  const rowsOf = (rows: typeof train | undefined): number[] =>
    Array.from({ length: rows?.rows ?? 0 }, (_, row) =>
      Array.from(rows?.get(row)[0].values ?? [], Number),
    ).flat();
  const all = [...rowsOf(train), ...rowsOf(heldOut)];
  assert.equal(tokenizer.decode(all).replace(/(<\/s>)+$/, ""), text);
  assert.deepEqual([train.rows, heldOut?.rows], [13, 3]);
  assert.equal(train.columns.length, 2);
  assert.equal(digest, createHash("sha256").update(text).digest("hex"));
});

test("the same seed holds out the same texts, another seed others", async () => {
  const content = lines(...Array.from({ length: 50 }, (_, index) => ({ text: `text ${index}` })));
  const held = async (seed: number): Promise<string> => {
    const { heldOut } = await load(content, { packing: false, heldOut: 0.1, seed });
    return Array.from({ length: heldOut?.rows ?? 0 }, (_, row) => String(heldOut?.get(row)[0].values)).join();
  };
  assert.equal(await held(1), await held(1));
  assert.notEqual(await held(1), await held(2));
});

test("a hostile file is rejected with its line", async () => {
  const good = lines({ text: "good" });
  for (const [content, message] of [
    ["{", /line 2 is not JSON/],
    ["[1]", /line 2: the file must be an object/],
    ['{"txt": 1}', /line 2 has the fields txt\. It needs "text"/],
    ['{"text": 5}', /line 2: text must be a string, but is 5\. Correct the line/],
    ['{"prompt": "a"}', /completion must be a string/],
    ['{"messages": [{"role": 1}]}', /messages\[0\]\.role must be a string/],
    ['{"messages": []}', /line 2: The chat has 0 messages and no answer/],
    ['{"messages": [{"role": "user", "content": {"a": 1}}]}', /content must be a string or a list/],
    [`${"[".repeat(5000)}${"]".repeat(5000)}`, /line 2 has 5000 levels; the maximum is 64/],
    [`[${"[],".repeat(250_000)}[]]`, /line 2 has 250002 arrays and objects/],
  ] as const)
    await rejectsLater("BAD_FILE", load(`${good}${content}\n${good}`), message);
  const notText = Buffer.concat([Buffer.from("ok\n"), Buffer.from([0xff, 0x0a])]);
  const path = write("b.txt", notText);
  await rejectsLater(
    "BAD_FILE",
    loadTextData(path, { tokenizer, length: 8 }),
    /b\.txt, line 2, is not UTF-8/,
  );
  const hostile = load(
    `${lines({ messages: chat.messages, __proto__x: 1 })}`.replace("__proto__x", "__proto__"),
  );
  assert.equal((await hostile).figures.texts, 1);
});

test("what is no text file is rejected, and so are wrong options and too many tokens", async () => {
  const options = { tokenizer, length: 8 };
  mkdirSync(join(folder, "folder.txt"), { recursive: true });
  await rejectsLater("BAD_FILE", loadTextData(join(folder, "folder.txt"), options), /is a folder/);
  await rejectsLater("BAD_FILE", loadTextData(join(folder, "none.txt"), options), /none\.txt can't be read/);
  await rejectsLater("BAD_ARGUMENT", loadTextData("a.csv", options), /must end in \.txt/);
  await rejectsLater("BAD_ARGUMENT", load("", { length: 1 }), /length is 1/);
  await rejectsLater("BAD_ARGUMENT", load("", { heldOut: 1 }), /heldOut is 1/);
  await rejectsLater(
    "BAD_ARGUMENT",
    load("", { packin: true } as object),
    /unknown option packin\. Did you mean packing/,
  );
  await rejectsLater("BAD_FILE", load(""), /no text to train on/);
  await rejectsLater("BAD_ARGUMENT", load(lines({ text: "abcdef" }), { maxTokens: 5 }), /more than 5 tokens/);
});
