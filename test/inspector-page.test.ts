/**
 * The inspector's page, end to end: in a real Chromium, from a real server, on run folders as runs leave them.
 *
 * @mostlyWaits for the browser
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { setTimeout } from "node:timers/promises";
import type { PlanRecord } from "../src/records/index.js";
import { readInspection } from "../src/train/index.js";
import { needsBrowser, type Page } from "./support/browser.js";
import { holdfastProgram, tinyModel } from "./support/crossasset-runs.js";
import { effort, isThorough } from "./support/effort.js";
import { makeFolder } from "./support/folders.js";
import { openPage, SharedPage, saved, serve, waitUntil } from "./support/inspector-page.js";
import { repositoryRoot } from "./support/repository.js";
import { samplePlan } from "./support/sample-plan.js";
import { sampleIncidents, writeSampleRun } from "./support/sample-run.js";

const plan = withCopies(samplePlan({ layers: 12 }));
const tabs = ["learning", "speed", "memory", "incidents", "about"] as const;

/** Created outside the tests: a test's own folders are removed before its pages close. */
const folders = { runs: makeFolder(), trained: makeFolder() };

writeRuns(folders.runs);

const runs = new SharedPage(folders.runs);

/** Two whole runs, one of them with incidents. */
function writeRuns(folder: string): void {
  writeSampleRun(folder, "first", { steps: 600, plans: [plan], incidents: sampleIncidents() }).close();
  writeSampleRun(folder, "second", {
    steps: 500,
    startMs: Date.UTC(2026, 0, 4),
    lossAt: (step) => 1 / step,
  }).close();
}

/** As if each call had been traced with a copy behind it, which the pass takes out. */
function withCopies(sample: PlanRecord): PlanRecord {
  const [trace, pass] = sample.stages;
  const calls = pass!.calls.flatMap((call) => [call, { op: "copy", kernel: "copy" }]);
  return { ...sample, stages: [{ ...trace!, calls }, pass!] };
}

function figure(page: Page, title: string) {
  return page.locator(`[data-figure="${title}"]`);
}

test("the built page has all that it names, and names nothing from elsewhere", () => {
  const folder = join(repositoryRoot, "dist/page");
  const index = readFileSync(join(folder, "index.html"), "utf8");
  const named = [...index.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, address = ""]) => address);
  assert.ok(named.includes("/assets/main.js"));
  for (const address of named) assert.ok(existsSync(join(folder, address.replace("/assets/", ""))), address);
  // A bundle has nothing left to import.
  assert.doesNotMatch(readFileSync(join(folder, "main.js"), "utf8"), /^import\b|[;}]import\b|\bimport\(/);
});

test("every tab shows its figures", needsBrowser, async (t) => {
  const page = await runs.show(t, "first");
  const expected: Readonly<Record<(typeof tabs)[number], readonly string[]>> = {
    learning: [
      "Loss by step",
      "Learning rate",
      "Loss by epoch",
      "Accuracy by fold",
      "Accuracy by scale",
      "Confusion matrix",
    ],
    speed: ["Samples per second", "Step time", "Kernels", "Calls", "Compiler passes", "explain()"],
    memory: [
      "Budget by holder",
      "Step memory",
      "Live at the peak",
      "All tensors of the step",
      "Arena by step",
    ],
    incidents: [],
    about: ["Settings", "Machine and times", "Results", "Exports"],
  };
  for (const tab of tabs) {
    await page.locator(`#tab-${tab}`).click();
    for (const title of expected[tab]) {
      await figure(page, title).waitFor();
      await figure(page, title).locator(".empty").waitFor({ state: "detached" });
    }
    assert.match(page.url(), new RegExp(`#/first/${tab}`));
    // Nothing that can't be seen makes the page longer than what can.
    const below =
      'document.documentElement.scrollHeight - scrollY - Math.max(innerHeight, document.querySelector("main").getBoundingClientRect().bottom)';
    assert.ok(Number(await page.evaluate(below)) <= 1, tab);
  }
  await page.locator("#tab-incidents").click();
  await page.locator(".incident-card").first().waitFor();
  assert.equal(await page.locator(".incident-card").count(), sampleIncidents().length);
  assert.match(await page.locator(".incident-card").first().innerText(), /failure[\s\S]*The device is lost/);
  assert.equal(await page.locator("#tab-incidents .badge").innerText(), "5");
});

test(
  "a distributed run shows its ranks side by side, and marks the one that others wait for",
  needsBrowser,
  async (t) => {
    const run = writeSampleRun(folders.runs, "ranks", { steps: 100 });
    run.writeRanks([8, 8.3, 13, 7.9]);
    run.close();
    const page = await runs.show(t, "ranks/speed");
    const table = figure(page, "Ranks");
    await table.getByText("node1").first().waitFor();
    assert.match(await table.innerText(), /4 processes does in a step\. The others wait for rank 2\./);
    assert.equal(await table.locator("tbody tr").count(), 4);
    assert.match(await table.locator("tbody tr", { hasText: "slow" }).innerText(), /^2slow\s+node1\s+4002\s/);
    await figure(page, "Own work by rank").locator(".legend").getByText("rank 3").waitFor();
    const { bytes } = await saved(page, () => table.getByRole("button", { name: "CSV" }).click());
    assert.match(bytes.toString(), /^rank,host,process,device,.*\r\n0,(.*\r\n)+2,node1,4002,.*,1\r\n3,/);
    await runs.goTo("first/speed");
    await figure(page, "Kernels").waitFor();
    assert.equal(await table.count(), 0);
  },
);

test(
  "a run of a language model shows its perplexity, tokens per second and samples",
  needsBrowser,
  async (t) => {
    const { path } = writeSampleRun(folders.runs, "texts", { steps: 20, folds: 1, epochs: 1 });
    const lines = [
      { step: 0, data: { rows: 10, tokens: 500, countedTokens: 490, evaluationRows: 2 } },
      { step: 0, evaluation: { loss: 5, perplexity: 148.4, tokens: 40 } },
      {
        step: 20,
        epoch: 0,
        loss: 2,
        lr: 1e-3,
        samplesPerSecond: 30,
        tokensPerSecond: 1500,
        seconds: 2,
        skipped: 0,
      },
      { step: 20, evaluation: { loss: 2, perplexity: 7.389, tokens: 40 } },
      {
        step: 20,
        texts: [
          { prompt: "One", text: " for\n<b>sorrow</b>" },
          { prompt: "Two", text: " for mirth" },
        ],
      },
    ];
    writeFileSync(join(path, "metrics.jsonl"), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    const page = await runs.show(t, "texts");
    const tiles = page.locator(".run-head .tiles");
    await tiles.getByText("1,500", { exact: true }).waitFor();
    await tiles.getByText("7.389", { exact: true }).waitFor();
    await figure(page, "Perplexity").locator("canvas").waitFor();
    const { bytes } = await saved(page, () =>
      figure(page, "Perplexity").getByRole("button", { name: "CSV" }).click(),
    );
    assert.equal(bytes.toString().trim(), "step,perplexity\r\n0,148.4\r\n20,7.389");
    const samples = figure(page, "Samples").locator(".samples p");
    assert.deepEqual(
      [await samples.first().innerText(), await samples.count()],
      ["One for\n<b>sorrow</b>", 2],
      "as text, not as a page",
    );
    await page.evaluate(
      `(() => { const select = document.querySelector('[data-figure="Samples"] select');
      select.value = "Two"; select.dispatchEvent(new Event("change", { bubbles: true })); })()`,
    );
    await waitUntil(page, 'document.querySelectorAll(".samples li").length === 1');
    await figure(page, "Loss by epoch").locator(".legend").getByText("training loss").waitFor();
    assert.equal(await figure(page, "Accuracy by fold").count(), 0);
    await page.locator("#tab-speed").click();
    await figure(page, "Tokens per second").locator("canvas").waitFor();
  },
);

test("the head tells the step, the loss and the memory", needsBrowser, async (t) => {
  const page = await runs.show(t, "first");
  const head = page.locator(".run-head");
  await head.getByText("of 600, 100 %").waitFor();
  await head.getByText("96 MiB").waitFor();
  await head.getByText("1,602", { exact: true }).waitFor();
  await head.getByText("finished", { exact: true }).waitFor();
});

test(
  "the picture has a rectangle for each tensor of the plan, and hovering tells all of it",
  needsBrowser,
  async (t) => {
    const page = await runs.show(t, "first/memory");
    const picture = page.locator(".plan-picture");
    await picture.scrollIntoViewIfNeeded();
    assert.equal(Number(await picture.getAttribute("data-boxes")), plan.memory.tensors.length);
    const place = await pointerOver(page, plan);
    const kinds = new Map(
      plan.memory.tensors.map((tensor) => [`${tensor.type === undefined} ${tensor.isSaved}`, tensor]),
    );
    for (const tensor of effort({ quick: [...kinds.values()], thorough: plan.memory.tensors })) {
      const { x, y } = place(tensor);
      await page.mouse.move(x, y);
      await waitUntil(
        page,
        `document.querySelector(".tooltip b")?.textContent === ${JSON.stringify(tensor.label)}`,
      );
      const told = await page.locator(".tooltip").innerText();
      for (const fact of [
        tensor.type ?? "scratch memory",
        tensor.bytes.toLocaleString("en-GB"),
        `call ${tensor.birth} `,
        `call ${tensor.death} `,
      ])
        assert.ok(told.includes(fact), `${tensor.label}: ${fact} in ${told}`);
      assert.equal(told.includes("for backward"), tensor.isSaved);
    }
  },
);

test("those alive at the peak add up to the plan's lower bound", needsBrowser, async (t) => {
  const page = await runs.show(t, "first/memory");
  const sum = figure(page, "Live at the peak").locator("[data-sum]");
  assert.equal(Number(await sum.getAttribute("data-sum")), plan.memory.lowerBound);
  const alive = plan.memory.tensors.filter(
    ({ birth, death }) => birth <= plan.memory.peakAt && plan.memory.peakAt <= death,
  );
  await figure(page, "Live at the peak").getByText(`of ${alive.length}`).waitFor();
});

test("a search narrows the table, and a selected row is outlined in the picture", needsBrowser, async (t) => {
  const page = await runs.show(t, "first/memory");
  await page.locator(".plan-picture").waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("scratch");
  const rows = figure(page, "All tensors of the step").locator("tbody tr");
  const wanted = plan.memory.tensors.filter(({ label, type }) =>
    `${label} ${type ?? "scratch"}`.includes("scratch"),
  );
  await waitUntil(
    page,
    `document.querySelectorAll('[data-figure="All tensors of the step"] tbody tr').length === ${wanted.length}`,
  );
  await rows.first().click();
  await page.locator(".plan-status").getByText(wanted[0]!.label, { exact: false }).waitFor();
});

test("another run that is ticked is laid over the first", needsBrowser, async (t) => {
  const page = await runs.show(t, "first");
  await page.getByLabel("Compare second").check();
  const loss = figure(page, "Loss by step");
  for (const name of ["first", "second"])
    await loss.locator(".legend").getByText(name, { exact: true }).waitFor();
  assert.match(page.url(), /with=second/);
  const { bytes } = await saved(page, () => loss.getByRole("button", { name: "CSV" }).click());
  const [head, ...rows] = bytes.toString().trim().split("\r\n");
  assert.equal(head, "step,first,first min,first max,second");
  assert.equal(rows.length, 600);
  assert.equal(Number(rows[1]?.split(",")[4]), 0.5);
  await page.getByLabel("Compare second").uncheck();
  await loss.locator(".legend").getByText("loss", { exact: true }).waitFor();
});

test("charts are saved as PNG and CSV, and every export comes", needsBrowser, async (t) => {
  const page = await runs.show(t, "first");
  const loss = figure(page, "Loss by step");
  await loss.locator("canvas").waitFor();
  const png = await saved(page, () => loss.getByRole("button", { name: "PNG" }).click());
  assert.equal(png.name, "first-loss-by-step.png");
  assert.equal(png.bytes.subarray(1, 4).toString(), "PNG");
  const csv = await saved(page, () => loss.getByRole("button", { name: "CSV" }).click());
  assert.equal(csv.bytes.toString().split("\r\n").length, 602);
  await page.keyboard.press("5");
  for (const [name, file] of [
    ["Trace", /trace\.json$/],
    ["Memory snapshot", /memory-0\.pickle$/],
    ["Steps", /steps\.csv$/],
    ["Metrics", /metrics\.csv$/],
  ] as const) {
    const export_ = await saved(page, () =>
      page.locator(".exports").getByRole("link", { name, exact: true }).click(),
    );
    assert.match(export_.name, file);
    assert.ok(export_.bytes.length > 0, name);
  }
});

test(
  "a folder that is damaged or half written is told, and what can be read is shown",
  needsBrowser,
  async (t) => {
    const folder = folders.runs;
    mkdirSync(join(folder, "torn"));
    writeFileSync(join(folder, "torn", "run.json"), '{"settings":');
    writeSampleRun(folder, "cut", { steps: 50 }).close();
    truncateSync(join(folder, "cut", "steps.bin"), 512 + 64 * 20 + 13);
    appendFileSync(join(folder, "cut", "plans.jsonl"), '{"name": "half');
    appendFileSync(join(folder, "cut", "incidents.jsonl"), "no JSON at all\n");
    writeSampleRun(folder, "strange", { steps: 50 }).close();
    writeFileSync(join(folder, "strange", "steps.bin"), "x".repeat(2000));
    const page = await runs.show(t, "torn", { mayFail: true });
    await page.locator(".banner").getByText("run.json").waitFor();
    for (const tab of tabs) {
      await page.locator(`#tab-${tab}`).click();
      await page.locator(".empty").first().waitFor();
    }
    await runs.goTo("cut/learning");
    await page.locator("h1", { hasText: "cut" }).waitFor();
    await page.locator(".banner").getByText("incidents.jsonl").waitFor();
    await figure(page, "Loss by step").locator("canvas").waitFor();
    const { bytes } = await saved(page, () =>
      figure(page, "Loss by step").getByRole("button", { name: "CSV" }).click(),
    );
    assert.equal(bytes.toString().trim().split("\r\n").length, 21);
    await runs.goTo("strange/learning");
    await page.locator(".banner").getByText("steps.bin").waitFor();
    await figure(page, "Loss by step").getByText("The steps can't be shown").waitFor();
    await figure(page, "Accuracy by fold").locator(".bars li").first().waitFor();
  },
);

test("a running run is followed", needsBrowser, async (t) => {
  const run = writeSampleRun(folders.runs, "going", { steps: 40, state: "running", startMs: Date.now() });
  t.after(() => run.close());
  const page = await runs.show(t, "going");
  await page.locator(".run-head .tiles").getByText("40", { exact: true }).waitFor();
  assert.equal(await page.locator("#tab-incidents .badge").count(), 0);
  run.appendSteps(25);
  run.appendIncident(sampleIncidents()[0]!);
  run.writeStatus("running");
  await page.locator(".run-head .tiles").getByText("65", { exact: true }).waitFor();
  await page.locator("#tab-incidents .badge").waitFor();
  await waitUntil(page, 'document.querySelector(".plot")?.getAttribute("aria-valuemax") === "64"');
});

test(
  "a folder without runs says how to make one, and a run that begins there appears",
  needsBrowser,
  async (t) => {
    const page = await runs.show(t, "first");
    const empty = makeFolder();
    const { url } = await serve(t, empty);
    await page.goto(`${url}#/`);
    await page.getByText("No runs yet").waitFor();
    const run = writeSampleRun(empty, "now", { steps: 30, state: "running", startMs: Date.now() });
    await page.locator(".state.live").waitFor();
    await figure(page, "Loss by step").locator("canvas").waitFor();
    run.writeResults();
    run.writeStatus("finished");
    run.close();
    await page.locator(".state.finished").waitFor();
    await figure(page, "Accuracy by scale").locator(".bars li").first().waitFor();
    // Before the server ends: a lost stream is an error in a page.
    await page.goto("about:blank");
  },
);

// Only in test:long: the training takes seconds. npm test shows sample runs, and e2e/crossasset-record.test.ts reads the record of a training.
if (isThorough) {
  test(
    "a run that is trained appears, is followed to its end, and its picture is its plan's",
    needsBrowser,
    async (t) => {
      const out = join(folders.trained, "now");
      const data = ["--generate", "8600", "--batch", "64", "--folds", "1", "--epochs", "1"];
      const job = ["train", "crossasset", "--device", "cpu", ...data, ...tinyModel, "--quiet", "--out", out];
      const { url } = await serve(t, folders.trained);
      const page = await openPage(t, `${url}#/`);
      await page.getByText("No runs yet").waitFor();
      const child = spawn(process.execPath, [holdfastProgram, ...job], {
        env: { ...process.env, HOLDFAST_STALL_AFTER: "off" },
        stdio: "ignore",
      });
      const ended = once(child, "close");
      t.after(() => child.kill("SIGKILL"));
      // A run this short might end before the page looks: it stops while the page finds it. This log is the last file that it creates
      // before it trains.
      while (!existsSync(join(out, "recorder.log")) && child.exitCode === null) await setTimeout(5);
      child.kill("SIGSTOP");
      await page.locator(".state.live").waitFor();
      child.kill("SIGCONT");
      await figure(page, "Loss by step").locator("canvas").waitFor();
      const [code] = (await ended) as [number];
      assert.equal(code, 0);
      await page.locator(".state.finished").waitFor();
      await figure(page, "Accuracy by scale").locator(".bars li").first().waitFor();
      const { plans } = readInspection(out);
      const largest = [...plans].sort((a, b) => b.calls.length - a.calls.length)[0]!;
      await page.keyboard.press("3");
      await page.locator(`.plan-picture[data-boxes="${largest.memory.tensors.length}"]`).waitFor();
      const sum = figure(page, "Live at the peak").locator("[data-sum]");
      assert.equal(Number(await sum.getAttribute("data-sum")), largest.memory.lowerBound);
    },
  );
}

test("a lost server is reported, and found again when it is back", needsBrowser, async (t) => {
  const page = await runs.show(t, "first/learning", { mayFail: true });
  await figure(page, "Loss by step").locator("canvas").waitFor();
  await runs.stopServer();
  await page.getByText("Connection lost, retrying").waitFor();
  await figure(page, "Loss by step").locator("canvas").waitFor();
  await runs.startServer();
  await page.getByText("Connection lost, retrying").waitFor({ state: "detached" });
});

test("a phone's width needs no scrolling sideways, in any tab", needsBrowser, async (t) => {
  const page = await runs.show(t, "second/about");
  await page.setViewportSize({ width: 390, height: 844 });
  t.after(() => page.setViewportSize({ width: 1280, height: 900 }));
  await runs.goTo("first/about");
  for (const tab of tabs) {
    await page.locator(`#tab-${tab}`).click();
    await page.locator("#panel .figure").first().waitFor();
    assert.equal(await page.evaluate("document.documentElement.scrollWidth - innerWidth"), 0, tab);
  }
});

test("the page is dark where the system is, and as the reader wants it", needsBrowser, async (t) => {
  const page = await runs.show(t, "first");
  await page.emulateMedia({ colorScheme: "dark" });
  t.after(() => page.emulateMedia({ colorScheme: "light" }));
  await page.locator(".run-head").waitFor();
  const hasGround = (colour: string): Promise<void> =>
    waitUntil(page, `getComputedStyle(document.querySelector(".run-head")).backgroundColor === "${colour}"`);
  await hasGround("rgb(26, 30, 37)");
  await page.getByRole("button", { name: "Auto" }).click();
  await hasGround("rgb(255, 255, 255)");
  await page.getByRole("button", { name: "Light" }).click();
  await hasGround("rgb(26, 30, 37)");
  await page.reload();
  await page.getByRole("button", { name: "Dark" }).click();
  await page.getByRole("button", { name: "Auto" }).waitFor();
});

test("the keyboard reaches tabs, help, charts, tables and the picture", needsBrowser, async (t) => {
  const page = await runs.show(t, "first");
  await figure(page, "Loss by step").locator("canvas").waitFor();
  for (const [index, tab] of tabs.entries()) {
    await page.keyboard.press(String(index + 1));
    await page.locator(`#tab-${tab}[aria-selected=true]`).waitFor();
  }
  await page.locator("#tab-about").focus();
  await page.keyboard.press("ArrowRight");
  await page.locator("#tab-learning[aria-selected=true]").waitFor();
  await page.keyboard.press("?");
  await page.locator("dialog[open]").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("dialog[open]").waitFor({ state: "detached" });

  const plot = figure(page, "Loss by step").locator(".plot");
  await plot.focus();
  for (let press = 0; press < 3; press++) await page.keyboard.press("ArrowRight");
  await waitUntil(
    page,
    'document.querySelector(".plot")?.getAttribute("aria-valuetext")?.startsWith("step 3,")',
  );
  await page.keyboard.press("+");
  await figure(page, "Loss by step")
    .getByText(/steps \d+ to \d+/)
    .waitFor();
  await page.keyboard.press("0");
  await figure(page, "Loss by step")
    .getByText(/steps \d+ to \d+/)
    .waitFor({ state: "detached" });

  await page.keyboard.press("3");
  const picture = page.locator(".plan-picture");
  await picture.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await page.locator(".plan-status").getByText("calls").waitFor();
  const table = figure(page, "Live at the peak").locator("table");
  await table.focus();
  await page.keyboard.press("ArrowDown");
  await table.locator("tr.active").waitFor();
});

test("a pass is shown by the calls that it removed", needsBrowser, async (t) => {
  const page = await runs.show(t, "first/speed");
  const passes = figure(page, "Compiler passes");
  const [trace, dead] = plan.stages;
  await passes
    .getByText(`${trace!.calls.length} calls before → ${dead!.calls.length} after`, { exact: false })
    .waitFor();
  assert.equal(await passes.locator("li.removed").count(), dead!.calls.length);
  assert.match(await figure(page, "explain()").locator("pre").innerText(), /compiled step "train step"/);
});

test(
  "smoothing, the log scale and zooming by wheel and drag change the loss chart",
  needsBrowser,
  async (t) => {
    writeSampleRun(folders.runs, "long", { steps: 20_000 }).close();
    const page = await runs.show(t, "long");
    const loss = figure(page, "Loss by step");
    await loss.locator("canvas").waitFor();
    await loss.getByLabel("Log scale").check();
    await loss.locator("input[type=range]").fill("0.9");
    await loss.getByText("0.90").waitFor();
    const box = (await loss.locator(".u-over").boundingBox())!;
    await page.mouse.move(box.x + box.width / 2, box.y + 50);
    await page.mouse.wheel(0, -600);
    await loss.getByText(/steps [\d,]+ to [\d,]+/).waitFor();
    await page.mouse.move(box.x + 200, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + 260, box.y + 50, { steps: 4 });
    await page.mouse.up();
    // Few enough steps by now to see each.
    const points = 'Number(document.querySelector(".plot")?.getAttribute("aria-valuemax"))';
    await waitUntil(page, `${points} > 10 && ${points} < 1999`);
    await page.mouse.dblclick(box.x + 200, box.y + 50);
    await loss.getByText(/steps [\d,]+ to [\d,]+/).waitFor({ state: "detached" });
  },
);

/** From a tensor to a point inside of its rectangle, on the page. */
async function pointerOver(page: Page, { memory, calls }: PlanRecord) {
  const picture = page.locator(".plan-picture");
  const box = (await picture.boundingBox())!;
  const [left, top, width, height] = (await picture.getAttribute("data-area"))!.split(" ").map(Number);
  const lastCall = Math.max(calls.length, ...memory.tensors.map(({ death }) => death + 1));
  const lastByte = Math.max(memory.peak, ...memory.tensors.map(({ offset, bytes }) => offset + bytes));
  return ({ birth, death, offset, bytes }: PlanRecord["memory"]["tensors"][number]) => ({
    x: box.x + left! + (((birth + death + 1) / 2) * width!) / lastCall,
    y: box.y + top! + height! - ((offset + bytes / 2) * height!) / lastByte,
  });
}
