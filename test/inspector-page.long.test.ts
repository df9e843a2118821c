/** The inspector's page with runs of a million steps and plans of many tensors. */

import assert from "node:assert/strict";
import test from "node:test";
import type { PlanRecord } from "../src/records/index.js";
import { needsBrowser, type Page } from "./support/browser.js";
import { makeFolder } from "./support/folders.js";
import { openPage, serve, waitUntil } from "./support/inspector-page.js";
import { samplePlan } from "./support/sample-plan.js";
import { writeSampleRun } from "./support/sample-run.js";

/** Created outside the tests: a test's own folders are removed before its pages close. */
const folders = { million: makeFolder(), wide: makeFolder() };

const frames = 60;

/** Measures up to three times: one slow result may be the machine's, three are the page's. */
async function bestOf(limit: number, measure: () => Promise<number>): Promise<number> {
  let best = await measure();
  for (let attempt = 1; attempt < 3 && best > limit; attempt++) best = Math.min(best, await measure());
  assert.ok(best < limit, `${best} ms`);
  return best;
}

test("a long run opens fast, and zooming through it does not stutter", needsBrowser, async (t) => {
  const steps = 1_000_000;
  const folder = folders.million;
  writeSampleRun(folder, "million", { steps }).close();
  const { url } = await serve(t, folder);
  const open = async (): Promise<Page> => {
    const page = await openPage(t, url);
    await waitUntil(page, 'performance.getEntriesByName("inspector:loss-drawn").length > 0');
    return page;
  };
  const page = await open();
  const drawnAt = (opened: Page) =>
    opened.evaluate('performance.getEntriesByName("inspector:loss-drawn")[0].startTime').then(Number);
  // The first page of a browser is slow.
  const openMs = await bestOf(3000, async () => drawnAt(await open()));
  const zoomMs = await bestOf(1500, () => zoomFrames(page, ".u-over"));
  t.diagnostic(
    `${steps} steps: drawn after ${openMs.toFixed(0)} ms; ${frames} frames of zooming in ${zoomMs.toFixed(0)} ms`,
  );
});

test("a plan of many tensors is drawn, and zoomed without stutter", needsBrowser, async (t) => {
  const count = 20_000;
  const folder = folders.wide;
  writeSampleRun(folder, "wide", { steps: 10, plans: [planOfTensors(count)] }).close();
  const { url } = await serve(t, folder);
  const page = await openPage(t, `${url}#/wide/memory`);
  await page.locator(`.plan-picture[data-boxes="${count}"]`).scrollIntoViewIfNeeded();
  const zoomMs = await bestOf(3000, () => zoomFrames(page, ".plan-picture"));
  t.diagnostic(`${count} tensors: ${frames} frames of zooming in ${zoomMs.toFixed(0)} ms`);
});

/** Turns the wheel in every frame, in and out again; how long it took in all, in milliseconds. */
async function zoomFrames(page: Page, selector: string): Promise<number> {
  const code = `(async () => {
    const element = document.querySelector(${JSON.stringify(selector)});
    const { left, top, width, height } = element.getBoundingClientRect();
    const at = { clientX: left + width * 0.4, clientY: top + height * 0.4, bubbles: true, cancelable: true };
    const started = performance.now();
    for (let frame = 0; frame < ${frames}; frame++) {
      element.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: frame < ${frames / 2} ? -60 : 60 }));
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    return performance.now() - started;
  })()`;
  return Number(await page.evaluate(code));
}

/** As many tensors, in rows of a hundred, each alive for a few calls. */
function planOfTensors(count: number): PlanRecord {
  const tensors = Array.from({ length: count }, (_, index) => ({
    label: `op ${index}`,
    type: "f32 [64]",
    bytes: 256,
    offset: (index % 100) * 256,
    birth: Math.floor(index / 100) * 5,
    death: Math.floor(index / 100) * 5 + 3,
    isSaved: index % 3 === 0,
  }));
  const memory = { peak: 25_600, lowerBound: 25_600, peakAt: 0, tensors, persistent: [] };
  return { ...samplePlan(), memory };
}
