/** A library is silent unless it is asked or something is wrong: a plain program's output is only its own. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { repositoryRoot } from "./support/repository.js";

const program = `
  import { device, nn, optim, randn } from "holdfast";
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
`;

function run(environment: Readonly<Record<string, string>>) {
  return spawnSync(process.execPath, ["--input-type=module", "-e", program], {
    ...{ cwd: repositoryRoot, encoding: "utf8", env: { ...process.env, ...environment } },
  });
}

test("a program that opens a device, trains and closes writes nothing", () => {
  const { status, stdout, stderr } = run({ HOLDFAST_LOG: "quiet" });
  assert.deepEqual({ status, stdout, stderr }, { status: 0, stdout: "", stderr: "" });
});

test("with phase logging, the same program reports its memory at the start, and its compilation", () => {
  const { status, stderr } = run({ HOLDFAST_LOG: "phases" });
  assert.equal(status, 0);
  assert.match(stderr, /^holdfast: memory at the start: CPU/m);
  assert.match(stderr, /^compile \(step\): entered$/m);
});
