/** Tokenizers give the ids and the texts that the package tokenizers gives, for tricky strings and for random ids. */

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { gunzipSync } from "node:zlib";
import { loadTokenizer, type Tokenizer } from "holdfast";
import { makeFolder } from "./support/folders.js";
import { repositoryRoot } from "./support/repository.js";

interface TokenizerCase {
  readonly name: string;
  /** The record whose tokenizer.json these parts change. */
  readonly base: string | null;
  readonly parts: object;
  readonly ids: readonly (readonly number[])[];
  readonly decoded: readonly string[];
  /** Without special tokens, where that differs, by the number of the text. */
  readonly skipped: Readonly<Record<number, string>>;
  readonly lists: readonly (readonly number[])[];
  readonly listed: readonly string[];
}

const file = join(repositoryRoot, "test/oracle/tokenizers.json.gz");
const { texts, tokenizers } = JSON.parse(gunzipSync(readFileSync(file)).toString()) as {
  texts: readonly string[];
  tokenizers: readonly TokenizerCase[];
};
const folder = makeFolder();

function load({ base, parts }: TokenizerCase): Tokenizer {
  const inherited = tokenizers.find(({ name }) => name === base)?.parts;
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify({ ...inherited, ...parts }));
  return loadTokenizer(folder);
}

for (const given of tokenizers)
  test(`${given.name}: the ids and texts of the package tokenizers`, () => {
    const tokenizer = load(given);
    const problems: object[] = [];
    const compare = (what: string, source: unknown, actual: unknown, expected: unknown): void => {
      if (JSON.stringify(actual) !== JSON.stringify(expected))
        problems.push({ what, source, actual, expected });
    };
    for (const [at, text] of texts.entries()) {
      const ids = given.ids[at] ?? [];
      compare("encode", text, [...tokenizer.encode(text)], ids);
      compare("decode", ids, tokenizer.decode(ids, { skipSpecialTokens: false }), given.decoded[at]);
      const skipped = given.skipped[at] ?? given.decoded[at];
      compare(
        "decode without special tokens",
        ids,
        tokenizer.decode(ids, { skipSpecialTokens: true }),
        skipped,
      );
    }
    for (const [at, ids] of given.lists.entries())
      compare("decode", ids, tokenizer.decode(ids, { skipSpecialTokens: false }), given.listed[at]);
    assert.deepEqual(problems.slice(0, 5), [], `${problems.length} differ`);
  });
