/** Borders in texts: the tokens of a prompt are those that the model sees without the answer. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { makeFolder } from "../../../test/support/folders.js";
import { loadTokenizer } from "../tokenizer/index.js";
import { encodeSections } from "./encode-sections.js";

/** A tokenizer as Llama 2 has it: a space before each text, and merges across words. */
function makeTokenizer() {
  const folder = makeFolder();
  const tokens = ["<unk>", "</s>", "▁", "a", "b", ":", "\n", "▁a", "▁b", "ab"];
  const merges = ["▁ a", "▁ b", "a b"];
  const prefix = {
    type: "Sequence",
    normalizers: [
      { type: "Prepend", prepend: "▁" },
      { type: "Replace", pattern: { String: " " }, content: "▁" },
    ],
  };
  const model = {
    type: "BPE",
    unk_token: "<unk>",
    vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
    merges,
  };
  const added = ["<unk>", "</s>"].map((content, id) => ({
    id,
    content,
    special: true,
    normalized: false,
    single_word: false,
    lstrip: false,
    rstrip: false,
  }));
  writeFileSync(
    join(folder, "tokenizer.json"),
    JSON.stringify({
      version: "1.0",
      added_tokens: added,
      normalizer: prefix,
      pre_tokenizer: null,
      post_processor: null,
      decoder: null,
      model,
    }),
  );
  return loadTokenizer(folder);
}

test("where no token crosses a border, the text has the tokens of the whole", () => {
  const tokenizer = makeTokenizer();
  const { ids, indices } = encodeSections(tokenizer, "a: b</s>\na", [2, 8]);
  assert.deepEqual(ids, [...tokenizer.encode("a: b</s>\na", { addSpecialTokens: false })]);
  const names = ids.map((id) => tokenizer.tokenOf(id));
  assert.deepEqual(names.slice(0, indices[0]), ["▁a", ":"]);
  assert.deepEqual(names.slice(indices[0], indices[1]), ["▁b", "</s>"]);
});

test("where a token would cross a border, the text is cut there, and gets no space of its own", () => {
  const tokenizer = makeTokenizer();
  const names = (text: string, border: number): readonly (string | undefined)[][] => {
    const { ids, indices } = encodeSections(tokenizer, text, [border]);
    const all = ids.map((id) => tokenizer.tokenOf(id));
    return [all.slice(0, indices[0]), all.slice(indices[0])];
  };
  assert.deepEqual(names("a: b", 3), [["▁a", ":", "▁"], ["b"]]);
  assert.deepEqual(names(":ab", 2), [["▁", ":", "a"], ["b"]]);
  assert.deepEqual(names("ab", 0), [[], ["▁a", "b"]]);
});
