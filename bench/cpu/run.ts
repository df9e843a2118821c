/**
 * `npm run bench:cpu`: a CrossAsset training step and a 3072×256×1024 GEMM with two threads, compared with
 * the peers. Each contender runs in its own process, one after the other, on one machine.
 *
 * `--install` fetches the npm peers first; `--only holdfast,torch` selects contenders; `--rounds 3` runs each
 * three times and takes its best; `--save` writes the output and every report to bench/results.
 * OPENBLAS_CORETYPE=SkylakeX (or Haswell) selects the kernels of OpenBLAS, also in PyTorch: an old version
 * does not recognise a new CPU.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { readOptions } from "../../test/support/command-line.js";
import { repositoryRoot } from "../../test/support/repository.js";
import { type Entry, entries, installPeers, type Outcome, runEntry } from "./contenders.js";
import { barsOf, differingOf, tableOf } from "./table.js";

const options = readOptions(import.meta.url, {
  install: { type: "boolean", default: false },
  only: { type: "string", default: entries.map(({ name }) => name).join(",") },
  rounds: { type: "string", default: "1" },
  save: { type: "boolean", default: false },
});

function chosenEntries(): readonly Entry[] {
  return options.only.split(",").map((wantedName) => {
    const entry = entries.find(({ name }) => name === wantedName);
    if (entry) return entry;
    throw new Error(
      `Unknown contender ${wantedName}; known are ${entries.map(({ name }) => name).join(", ")}.`,
    );
  });
}

/** The faster of two runs of a contender, because other load on the machine only ever adds time. */
function better(best: Outcome | undefined, next: Outcome): Outcome {
  if (!best || "absence" in best || "absence" in next) return next;
  const timeOf = ({ report: { step, gemmMs } }: typeof best): number => step?.stepMs ?? gemmMs;
  return timeOf(best) <= timeOf(next) ? best : next;
}

function runAll(): Outcome[] {
  const best = new Map<string, Outcome>();
  for (let round = 1; round <= Number(options.rounds); round++) {
    for (const entry of chosenEntries()) {
      process.stderr.write(`round ${round}: ${entry.name} …\n`);
      best.set(entry.name, better(best.get(entry.name), runEntry(entry)));
    }
  }
  return [...best.values()];
}

if (options.install) installPeers();
const outcomes = runAll();
const differing = differingOf(outcomes);
const text = [
  `${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} × ${cpus()[0]?.model}`,
  `OPENBLAS_CORETYPE: ${process.env["OPENBLAS_CORETYPE"] ?? "not set"}; rounds: ${options.rounds}`,
  "",
  tableOf(outcomes),
  "",
  barsOf(outcomes),
  ...(differing.length > 0
    ? [`\nThe losses of these contenders differ, so they trained another model: ${differing.join(", ")}`]
    : []),
].join("\n");
console.log(text);

if (options.save) {
  const [date] = new Date().toISOString().split("T");
  const [major] = process.versions.node.split(".");
  const core = process.env["OPENBLAS_CORETYPE"]?.toLowerCase();
  const name = [date, "cpu", `node${major}`, process.arch, ...(core ? [core] : [])].join("-");
  const folder = join(repositoryRoot, "bench/results");
  mkdirSync(folder, { recursive: true });
  const lines = outcomes.map((outcome) => JSON.stringify(outcome));
  writeFileSync(join(folder, `${name}.txt`), `${[text, "", ...lines].join("\n")}\n`);
}
