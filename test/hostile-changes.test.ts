/** Random changes of the files of a model: they are loaded with the same weights, or rejected by an error of the library. */

import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { after, test } from "node:test";
import fc from "fast-check";
import { effort } from "./support/effort.js";
import { header, indexFile, jsonOf, withFile, withHeader, withIndex } from "./support/hostile/folders.js";
import { type FolderPart, openSmallDevice, useModelFolder } from "./support/hostile/model-folder.js";
import { changedJson, changeKinds, hostileValues } from "./support/hostile/mutate-json.js";

const { numRuns } = effort({ quick: { numRuns: 20 }, thorough: { numRuns: 1000 } });

const change = fc.record({
  place: fc.nat(),
  kind: fc.constantFrom(...changeKinds),
  value: fc.nat(hostileValues.length - 1),
});

type Mutable = readonly [path: string, part: FolderPart, content: unknown, make: (changed: string) => string];

const file = (path: string, part: FolderPart): Mutable => [
  ...([path, part, jsonOf(path)] as const),
  (changed) => withFile(path, changed),
];

for (const [path, part, content, make] of [
  file("config.json", "model"),
  ["model.safetensors", "model", header, withHeader],
  [indexFile, "model", jsonOf(indexFile), withIndex],
  file("adapter/adapter_config.json", "adapter"),
  file("tokenizer.json", "tokenizer"),
  file("tokenizer_config.json", "tokenizer"),
  file("special_tokens_map.json", "tokenizer"),
  file("generation_config.json", "generation"),
] satisfies readonly Mutable[])
  test(`a change of ${path} gives the same weights, or an error of the library`, (t) => {
    const device = openSmallDevice();
    after(() => device.close());
    const whole = make(JSON.stringify(content));
    const { errors, weights: expected } = useModelFolder(whole, device, [part]);
    assert.deepEqual(errors, []);
    let rejected = 0;
    fc.assert(
      fc.property(change, (changed) => {
        const folder = make(changedJson(content, changed));
        const { errors, weights } = useModelFolder(folder, device, [part]);
        if (weights) assert.deepEqual(weights, expected);
        else assert.ok(errors.length > 0 || expected === undefined);
        if (errors.length > 0) rejected++;
        rmSync(folder, { recursive: true });
      }),
      { numRuns },
    );
    t.diagnostic(`${rejected} of ${numRuns} rejected`);
  });
