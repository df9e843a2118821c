/**
 * `npm run docs:images`: pictures of the inspector's views into docs/images/, for the README and the page about the inspector.
 * The runs never were, but for their plan: that is CrossAsset's training step, compiled and timed on this machine's CPU.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { crossasset, device, nn, optim, randn, type Tensor } from "holdfast";
import { openInspector } from "../src/inspect/index.js";
import type { MemorySample, PlanRecord, TroubleRecord } from "../src/train/index.js";
import { closeBrowser, openContext, type Page } from "../test/support/browser.js";
import { type SampleRun, writeSampleRun } from "../test/support/sample-run.js";

const images = fileURLToPath(new URL("../../docs/images/", import.meta.url));
const MiB = 2 ** 20;
const batch = 64;
const steps = 6000;
const stepMs = 110;

interface View {
  readonly file: string;
  readonly hash: string;
  readonly width?: number;
  readonly height?: number;
  readonly isDark?: boolean;
  readonly act?: (page: Page) => Promise<void>;
}

const views: readonly View[] = [
  { file: "inspector-learning", hash: "#/first/learning", height: 1600 },
  {
    file: "inspector-compare",
    hash: "#/first/learning?with=lower-rate",
    height: 720,
    isDark: true,
    act: smoothLoss,
  },
  { file: "inspector-speed", hash: "#/first/speed", height: 1100 },
  { file: "inspector-passes", hash: "#/first/speed", height: 760, act: showPasses },
  { file: "inspector-memory", hash: "#/first/memory", height: 1100, act: hoverTensor },
  { file: "inspector-trouble", hash: "#/first/trouble", height: 760 },
  { file: "inspector-about", hash: "#/first/about", height: 900 },
  { file: "inspector-narrow", hash: "#/first/learning", width: 390, height: 844 },
];

const folder = mkdtempSync(join(tmpdir(), "holdfast-pictures-"));
try {
  await picture();
} finally {
  await closeBrowser();
  rmSync(folder, { recursive: true, force: true });
}

async function picture(): Promise<void> {
  const startMs = Date.now() - steps * stepMs;
  const plan = { ...(await compiledPlan()), at: new Date(startMs).toISOString(), step: 0 };
  writeRun("lower-rate", plan, startMs, { lowest: 0.86, pace: 2.4, seed: 7 });
  const run = writeRun("first", plan, startMs + 1, { lowest: 0.78, pace: 5, seed: 3 });
  for (const record of trouble(startMs)) run.appendTrouble(record);
  mkdirSync(images, { recursive: true });
  const inspector = await openInspector({ root: folder });
  for (const view of views) await take(inspector.url.replace(/#.*$/, ""), view);
  await inspector.close();
}

async function take(url: string, view: View): Promise<void> {
  const { file, hash, width = 1280, height = 900, isDark = false, act } = view;
  const context = await openContext({ viewport: { width, height }, colorScheme: isDark ? "dark" : "light" });
  const page = await context.newPage();
  await page.goto(url + hash);
  await page.locator("#panel .figure").first().waitFor();
  // Whatever was asked for has come when nothing says that it is being read.
  await page.evaluate(
    `(async () => { const isWaiting = () => /Reading/.test(document.body.innerText) || /–/.test(document.querySelector(".tiles").innerText);
      for (let frame = 0; frame < 30 || isWaiting(); frame++)
      await new Promise((resolve) => requestAnimationFrame(resolve)); })()`,
  );
  await act?.(page);
  await page.screenshot({ path: join(images, `${file}.png`) });
  await context.close();
  console.log(`wrote docs/images/${file}.png`);
}

async function smoothLoss(page: Page): Promise<void> {
  await page.locator('[data-figure="Loss by step"] input[type=range]').fill("0.95");
  await page.evaluate("document.activeElement.blur()");
}

async function showPasses(page: Page): Promise<void> {
  await page.evaluate(`document.querySelector('[data-figure="What the compiler did"]').scrollIntoView()`);
  await page.locator(".pass-list").getByText("fuse", { exact: true }).first().click();
}

async function hoverTensor(page: Page): Promise<void> {
  const box = await page.locator(".plan-picture").boundingBox();
  if (box) await page.mouse.move(box.x + box.width * 0.36, box.y + box.height * 0.6);
}

/** What a training step of CrossAsset is compiled into. */
async function compiledPlan(): Promise<Omit<PlanRecord, "at" | "step">> {
  const cpu = await device("cpu", { print: () => {} });
  const model = new crossasset.CrossAsset().to(cpu);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-3 });
  const step = cpu.compile(
    (x: Tensor, labels: Tensor) => {
      const loss = nn.functional.crossEntropy(model.forward(x).reshape([-1, 3]), labels);
      loss.backward();
      optim.clipGradNorm(model.parameters(), 1);
      optimizer.step();
      optimizer.zeroGrad();
      return { loss };
    },
    { name: "train step" },
  );
  step(
    randn([batch, 12, 193], { device: cpu }),
    cpu.fromHost(new Int32Array(batch * 12), [batch * 12], "i32"),
  );
  const [plan] = step.report({ times: true });
  step.close();
  cpu.close();
  if (!plan) throw new Error("The step has no plan.");
  return plan;
}

interface Curve {
  readonly lowest: number;
  readonly pace: number;
  readonly seed: number;
}

function writeRun(name: string, plan: PlanRecord, startMs: number, curve: Curve): SampleRun {
  const run = writeSampleRun(folder, name, {
    ...{ steps, batch, startMs, stepMs, folds: 2, epochs: 6, plans: [plan] },
    device: "CPU (2 threads)",
    lossAt: (step) => lossAt(step, curve),
  });
  for (let part = 1; part <= 40; part++) run.appendMemory(memorySample(part, startMs));
  writeFileSync(
    join(run.path, "metrics.jsonl"),
    metrics(curve)
      .map((line) => `${JSON.stringify(line)}\n`)
      .join(""),
  );
  writeFileSync(join(run.path, "results.json"), JSON.stringify(results(curve)));
  run.writeStatus("finished", { now: startMs + steps * stepMs });
  run.close();
  return run;
}

/** A curve as losses are, begun anew in the second fold, with noise that is the same every time. */
function lossAt(step: number, { lowest, pace, seed }: Curve): number {
  const inFold = ((step - 1) % (steps / 2)) / (steps / 2);
  const noise = (Math.abs(Math.sin(step * 78.233 + seed) * 43758.5453) % 1) - 0.5;
  return lowest + (1.12 - lowest) * Math.exp(-pace * inFold) + 0.09 * noise * (1 + noise);
}

/** Each epoch's mean, as the job writes it. */
function metrics(curve: Curve): object[] {
  return Array.from({ length: 12 }, (_, index) => {
    const [fold, epoch, step] = [Math.floor(index / 6), index % 6, (index + 1) * (steps / 12)];
    const losses = Array.from({ length: steps / 12 }, (_, back) => lossAt(step - back, curve));
    const loss = losses.reduce((sum, one) => sum + one, 0) / losses.length + fold * 0.02;
    return { step, fold, epoch, loss, lr: 1e-3, samplesPerSecond: 582, seconds: 55, skipped: 0 };
  });
}

function memorySample(part: number, startMs: number): MemorySample {
  const step = (part * steps) / 40;
  const holders = [
    { label: "step arena", bytes: 48 * MiB },
    { label: "moments: AdamW", bytes: 7.4 * MiB },
    { label: "parameters", bytes: 3.7 * MiB },
    { label: "gradients", bytes: 3.7 * MiB },
    { label: "data set", bytes: 33 * MiB },
    { label: "staging", bytes: 16 * MiB },
  ];
  return {
    ...{ time: startMs + step * stepMs, step, limit: 256 * MiB, holders },
    used: holders.reduce((sum, { bytes }) => sum + bytes, 0),
    arena: {
      ...{
        capacity: 128 * MiB,
        committed: (part < 4 ? 32 : 48) * MiB,
        highWater: (part < 4 ? 27 : 41) * MiB,
      },
      ...{ live: (2 + (part % 3)) * MiB, pins: 2 + (part % 2), pinnedBytes: 1.5 * MiB, resets: step },
    },
  };
}

function trouble(startMs: number): TroubleRecord[] {
  const at = (step: number): string => new Date(startMs + step * stepMs).toISOString().slice(11, 23);
  const phases = (step: number): string[] => [
    `${at(step - 1)}  train step  0.109 s  step ${step - 1}`,
    `${at(step)}  upload      0.001 s  64 samples`,
    `${at(step)}  train step  begun    step ${step}`,
  ];
  return [
    {
      ...{ kind: "steps not finite", time: startMs + 1870 * stepMs, step: 1870, phases: phases(1870) },
      message: "3 steps had a loss that is not finite; their updates were left out.",
    },
    {
      ...{ kind: "over budget", time: startMs + 4310 * stepMs, step: 4310, phases: phases(4310) },
      message: "The budget has no room for 192 MiB more: 111.8 MiB of 256 MiB are held.",
      details:
        "step arena       48 MiB\ndata set         33 MiB\nstaging          16 MiB\nmoments: AdamW  7.4 MiB",
    },
  ];
}

function results({ lowest }: Curve): object {
  const better = (0.9 - lowest) / 2;
  const answers = (right: number) => ({
    ...{ loss: 1.46 - right, accuracy: right, majority: 0.374 },
    confusion: [right, right - 0.03, right - 0.09].map((share, label) =>
      [0, 1, 2].map((answer) =>
        Math.round(900 * (answer === label ? share : ((1 - share) * (answer + 2)) / 6)),
      ),
    ),
  });
  const minutes = [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233];
  const folds = [0, 1].map((fold) => ({
    ...{ fold, test: answers(0.53 + better + fold * 0.02) },
    perScale: minutes.map((scale, place) => ({
      minutes: scale,
      ...answers(0.6 + better - 0.012 * place + (place % 3) * 0.008 + fold * 0.02),
    })),
  }));
  return { folds, wf_mean: 0.54 + better, majority_mean: 0.374 };
}
