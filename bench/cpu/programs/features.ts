/** The table of features of `npm run bench:programs`: each cell is the answer of a probe that ran in the library's own process. */

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { repositoryRoot } from "../../../test/support/repository.js";
import { type Answers, features } from "./probes.js";
import { tableOf } from "./table.js";

const peer = (file: string): string => join(repositoryRoot, "bench/cpu/peers", file);
const libraries: readonly { readonly name: string; readonly args: readonly string[] }[] = [
  {
    name: "Holdfast",
    args: [
      "--conditions=holdfast-source",
      join(repositoryRoot, "dist/bench/cpu/programs/holdfast-features.js"),
    ],
  },
  { name: "jax-js wasm", args: [peer("features-jax-js.mjs")] },
  { name: "TensorFlow.js wasm", args: [peer("features-tensorflow-js.mjs"), "wasm"] },
  { name: "TensorFlow.js cpu", args: [peer("features-tensorflow-js.mjs"), "cpu"] },
];

function ask(args: readonly string[]): Answers | undefined {
  const { status, stdout } = spawnSync(process.execPath, [...args], { encoding: "utf8" });
  return status === 0 ? (JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as Answers) : undefined;
}

/** "yes", or "—" with a number; the reasons follow below the table. */
export function featureTable(): string {
  const answers = libraries.map(({ args }) => ask(args));
  const reasons: string[] = [];
  const numberOf = (reason: string): number => {
    if (!reasons.includes(reason)) reasons.push(reason);
    return reasons.indexOf(reason) + 1;
  };
  const rows = features.map((feature) => [
    feature,
    ...answers.map((answer) => {
      const reason = answer ? answer[feature] : "the probes did not run";
      return reason === "" ? "yes" : `— ${numberOf(reason)}`;
    }),
  ]);
  return [
    tableOf([["feature", ...libraries.map(({ name }) => name)], ...rows]),
    "",
    ...reasons.map((reason, index) => `${index + 1}: ${reason}`),
  ].join("\n");
}
