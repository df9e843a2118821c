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

test("a regular expression that needs too much memory to backtrack is an error of the tokenizer", () => {
  const pre_tokenizer = { type: "Split", pattern: { Regex: "(a|b)+" }, behavior: "Isolated", invert: false };
  const tokenizer = loadWith({ pre_tokenizer });
  rejects(
    "BAD_FILE",
    () => tokenizer.encode("a".repeat(10_000_000)),
    /tokenizer.json, needs too much memory/,
  );
});

test("steps that double a text again and again are stopped", () => {
  const double = { type: "Replace", pattern: { String: "a" }, content: "aa" };
  const steps = (step: object): readonly object[] => Array.from({ length: 60 }, () => step);
  const normalized = loadWith({ normalizer: { type: "Sequence", normalizers: steps(double) } });
  rejects("BAD_FILE", () => normalized.encode("aaaa"), /the normalizer makes \d+ characters of 4/);
  const byteLevel = { type: "ByteLevel", add_prefix_space: false };
  const split = loadWith({ pre_tokenizer: { type: "Sequence", pretokenizers: steps(byteLevel) } });
  rejects("BAD_FILE", () => split.encode("é"), /the pre_tokenizer makes/);
  const decoded = loadWith({ decoder: { type: "Sequence", decoders: steps(double) } });
  rejects("BAD_FILE", () => decoded.decode([97]), /the decoder makes/);
  const long = loadWith({ decoder: { ...double, content: "a".repeat(1024) } });
  rejects("BAD_FILE", () => long.decode(new Array(9000).fill(97)), /the decoder makes 9216000 characters/);
});

test("WordPiece takes the longest token, and long words take no longer than their length", () => {
  const vocab = { u: 0, a: 1, "##a": 2, "##aa": 3, "##😀": 4, "##\ud83d": 5 };
  const model = { type: "WordPiece", unk_token: "u", max_input_chars_per_word: 1000, vocab };
  const tokenizer = loadWith({ model, added_tokens: [], pre_tokenizer: { type: "WhitespaceSplit" } });
  assert.deepEqual([...tokenizer.encode("aaaa aab a😀 a😁")], [1, 3, 2, 0, 1, 4, 0]);
  const ids = tokenizer.encode(`${"a".repeat(1000)} `.repeat(100));
  assert.equal(ids.length, 100 * 501);
  assert.deepEqual([...tokenizer.encode("a".repeat(1001))], [0]);
});

test("a post-processor adds few ids, and a vocabulary has a limit", () => {
  const special_tokens = { x: { id: "x", ids: new Array(64).fill(97), tokens: [] } };
  const piece = { SpecialToken: { id: "x", type_id: 0 } };
  const single = [...new Array(17).fill(piece), { Sequence: { id: "A", type_id: 0 } }];
  const post_processor = { type: "TemplateProcessing", single, special_tokens };
  rejects("BAD_FILE", () => loadWith({ post_processor }), /post_processor must be made of at most 1024 ids/);
  const names = Array.from({ length: 1_500_001 }, (_, at) => `"${at.toString(36)}":0`);
  rejects("BAD_FILE", () => loadText(`{${names.join()}}`), /has 1500001 names; the maximum is 1500000/);
});
