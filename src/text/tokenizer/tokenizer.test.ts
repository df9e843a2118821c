/** Tokenizers: round trips, streams, folders, and files that are damaged or hostile. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after } from "node:test";
import fc from "fast-check";
import { rejects } from "../../../test/support/rejects.js";
import { ByteTokenizer, loadTokenizer, saveTokenizer, type Tokenizer } from "./index.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-tokenizer-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const bytes = new ByteTokenizer({ bosToken: "<s>", eosToken: "</s>", padToken: "<pad>" });

/** Loads a tokenizer from a text as tokenizer.json. */
function loadText(text: string): Tokenizer {
  writeFileSync(join(folder, "tokenizer.json"), text);
  return loadTokenizer(folder);
}

/** Loads the byte tokenizer with other values at paths such as "added_tokens.0.id". */
function loadWith(changes: Readonly<Record<string, unknown>>): Tokenizer {
  const json: unknown = JSON.parse(new TextDecoder().decode(bytes.files.get("tokenizer.json")));
  for (const [path, value] of Object.entries(changes)) {
    const keys = path.split(".");
    const last = keys.pop() ?? "";
    const parent = keys.reduce((at, key) => (at as Record<string, unknown>)[key], json);
    (parent as Record<string, unknown>)[last] = value;
  }
  return loadText(JSON.stringify(json));
}

test("a byte tokenizer gives back every text", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      const ids = bytes.encode(text);
      assert.deepEqual([...ids], [...new TextEncoder().encode(text)]);
      assert.equal(bytes.decode(ids), Buffer.from(text).toString());
    }),
    { numRuns: 20 },
  );
});

test("a stream of ids gives the text that all ids give at once", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 258 }), { maxLength: 40 }), (ids) => {
      for (const skipSpecialTokens of [true, false]) {
        const stream = bytes.decodeStream({ skipSpecialTokens });
        const text = ids.map((id) => stream.push(id)).join("") + stream.end();
        assert.equal(text, bytes.decode(ids, { skipSpecialTokens }));
      }
    }),
    { numRuns: 30 },
  );
});

test("a saved tokenizer encodes as before, and has its special tokens and its template", () => {
  const chatTemplate = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}";
  const saved = new ByteTokenizer({ bosToken: "<s>", eosToken: "</s>", addBosToken: true, chatTemplate });
  saveTokenizer(saved, join(folder, "saved"));
  const loaded = loadTokenizer(join(folder, "saved"));
  assert.deepEqual(loaded.encode("é</s>"), saved.encode("é</s>"));
  assert.deepEqual([loaded.bosId, loaded.eosId, loaded.padId], [256, 257, undefined]);
  assert.equal(loaded.applyChatTemplate([{ role: "user", content: "x" }]), "x</s>");
});

test("a batch is padded on the side that was asked for, and cut", () => {
  const batch = bytes.encodeBatch(["abc", "d"], { padding: "left", maxLength: 2 });
  assert.deepEqual([...batch.inputIds], [97, 98, 258, 100]);
  assert.deepEqual([...batch.attentionMask], [1, 1, 0, 1]);
  rejects("BAD_ARGUMENT", () => new ByteTokenizer().encodeBatch(["ab", "c"]), /no padding token/);
});

test("a folder without tokenizer.json, and files that are not JSON, are named", () => {
  rejects("BAD_FILE", () => loadTokenizer(join(folder, "none")), /has no tokenizer.json/);
  rejects("BAD_FILE", () => loadText("{"), /is not JSON/);
  rejects("BAD_FILE", () => loadText("[]"), /must be an object/);
  rejects("BAD_FILE", () => loadText("[".repeat(100)), /100 levels/);
  rejects("BAD_FILE", () => loadText(`[${"[],".repeat(3_000_001)}[]]`), /arrays and objects/);
});

test("wrong types, ids and merges are rejected with their place", () => {
  for (const [path, value, message] of [
    ["model", null, /model must be an object/],
    ["model.type", "Magic", /model\.type/],
    ["model.vocab.a", 1e9, /vocab\.a must be an id/],
    ["model.vocab.a", 3, /must be an id/],
    ["model.merges", ["a zz"], /merges\[0\]/],
    ["model.merges", [{}], /merges\[0\]/],
    ["added_tokens.0.content", 7, /added_tokens\[0\]\.content/],
    ["added_tokens.0.id", 5, /the id 5 to "<s>"/],
    ["added_tokens.0.id", 2 ** 40, /added_tokens\[0\]\.id/],
    ["pre_tokenizer.add_prefix_space", "no", /pre_tokenizer\.add_prefix_space/],
  ] as const) {
    rejects("BAD_FILE", () => loadWith({ [path]: value }), message);
  }
});

test("parts that Holdfast does not have are rejected by name", () => {
  for (const [part, type] of [
    ["normalizer", "Precompiled"],
    ["pre_tokenizer", "UnicodeScripts"],
    ["post_processor", "Magic"],
    ["decoder", "CTC"],
  ] as const) {
    rejects("UNSUPPORTED", () => loadWith({ [part]: { type } }), new RegExp(`${part} has the .*"${type}"`));
  }
  rejects("UNSUPPORTED", () => loadWith({ "model.dropout": 0.1 }), /dropout/);
});

test("a regular expression that backtracks without end is stopped", () => {
  const split = (source: string): unknown => ({
    type: "Split",
    pattern: { Regex: source },
    behavior: "Isolated",
    invert: false,
  });
  const tokenizer = loadWith({ pre_tokenizer: split("(a|aa)+$") });
  assert.equal(tokenizer.encode("aaa").length, 3);
  rejects("BAD_FILE", () => tokenizer.encode(`${"a".repeat(80)}b`), /took longer than/);
  const message = /regular expression at pre_tokenizer.pattern can't be used/;
  rejects("UNSUPPORTED", () => loadWith({ pre_tokenizer: split("(") }), message);
});

test("a normalizer that doubles a text again and again is stopped", () => {
  const double = { type: "Replace", pattern: { String: "a" }, content: "aa" };
  const tokenizer = loadWith({ normalizer: { type: "Sequence", normalizers: Array(60).fill(double) } });
  rejects("BAD_FILE", () => tokenizer.encode("aaaa"), /normalizer makes/);
});
