/** A library is silent unless it is asked or something is wrong: a plain program's output is only its own. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { plainEnvironment } from "./support/plain-environment.js";
import { repositoryRoot } from "./support/repository.js";

/** Trains twice: with phase logging, and after a line on stdout and stderr, without. */
const program = `
  import { device, nn, optim, randn } from "holdfast";
  await useLibrary("phases");
  console.log("quiet");
  console.error("quiet");
  await useLibrary("quiet");

  async function useLibrary(log) {
    process.env.HOLDFAST_LOG = log;
    const cpu = await device("cpu");
    const model = new nn.Linear(4, 4).to(cpu);
    const optimizer = new optim.AdamW(model.parameters());
    const train = (x) => {
      const loss = model.forward(x).square().mean();
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return { loss };
    };
    const x = randn([2, 4]);
    cpu.step(() => train(x).loss.item());
    const step = cpu.compile(train);
    for (let count = 0; count < 3; count++) step(x).loss.item();
    cpu.close();
  }
`;
const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
  ...{ cwd: repositoryRoot, encoding: "utf8", env: plainEnvironment },
});
const [logged = "", unlogged] = stderr.split("quiet\n");

test("a program that opens a device, trains and closes writes nothing", () => {
  assert.deepEqual({ status, stdout, unlogged }, { status: 0, stdout: "quiet\n", unlogged: "" }, stderr);
});

test("with phase logging, the same program reports its memory at the start, and its compilation", () => {
  assert.match(logged, /^holdfast: memory at the start: CPU/m);
  assert.match(logged, /^compile \(step\): entered$/m);
  for (const line of logged.trimEnd().split("\n"))
    assert.match(line, /^(holdfast: memory | {2}|.*: (entered|exited after .*)$)/);
});
