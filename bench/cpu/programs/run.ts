/**
 * `npm run bench:programs`: the training steps of the ten programs in test/programs, compared with jax-js and TensorFlow.js, and what each
 * of the libraries has of what the programs need. Each contender trains each program in a process of its own, one after the other.
 *
 * `--install` fetches the peers first; `--only gpt,lstm` selects programs; `--save` writes the output and every report to bench/results.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { readOptions } from "../../../test/support/command-line.js";
import { repositoryRoot } from "../../../test/support/repository.js";
import { installPeers } from "../contenders.js";
import { contenders, type Outcome, runContender } from "./contenders.js";
import { featureTable } from "./features.js";
import { lossTable, type Row, remarks, speedTable } from "./table.js";
import { names } from "./workloads.js";

const options = readOptions(import.meta.url, {
  install: { type: "boolean", default: false },
  only: { type: "string", default: names.join(",") },
  save: { type: "boolean", default: false },
});

const load = (): string =>
  loadavg()
    .map((value) => value.toFixed(1))
    .join(" ");

if (options.install) installPeers();
const loadBefore = load();
const chosen = options.only.split(",");
const unknown = chosen.filter((name) => !names.some((known) => known === name));
if (unknown.length > 0) throw new Error(`Unknown programs ${unknown}; known are ${names.join(", ")}.`);
const rows = names
  .filter((name) => chosen.includes(name))
  .map((program): Row => {
    const outcomes = new Map<string, Outcome>();
    for (const contender of contenders) {
      process.stderr.write(`${program}: ${contender.name} …\n`);
      outcomes.set(contender.name, runContender(contender, program));
    }
    return { program, outcomes };
  });
const contenderNames = contenders.map(({ name }) => name);
const said = remarks(rows);
const text = [
  `${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} × ${cpus()[0]?.model}`,
  `load averages before: ${loadBefore}; after: ${load()}`,
  `jax-js and TensorFlow.js run on one thread in Node, Holdfast on two. TensorFlow.js's Node backend is not compared: its native library is not on npm.`,
  "",
  speedTable(rows, contenderNames),
  "",
  lossTable(rows, contenderNames),
  "",
  said.length > 0 ? said.join("\n") : "All first losses agree, and all losses fell.",
  "",
  featureTable(),
].join("\n");
console.log(text);

if (options.save) {
  const [date] = new Date().toISOString().split("T");
  const [major] = process.versions.node.split(".");
  const folder = join(repositoryRoot, "bench/results");
  mkdirSync(folder, { recursive: true });
  const lines = rows.flatMap(({ program, outcomes }) =>
    [...outcomes].map(([contender, outcome]) => JSON.stringify({ program, contender, ...outcome })),
  );
  const name = `${date}-cpu-programs-node${major}-${process.arch}.txt`;
  writeFileSync(join(folder, name), `${[text, "", ...lines].join("\n")}\n`);
}
