/**
 * `npm run docs:images -- FOLDER`: writes pictures of the inspector's views to docs/images/, for the README and docs/inspector.md.
 * FOLDER has four runs of `holdfast train crossasset --epochs 12 --generate 1484642`, on a GPU for the published pictures:
 *
 *   --out FOLDER/first --profile                  the run that most pictures show
 *   --out FOLDER/lower-rate --profile --lr 3e-4   two runs to compare it with
 *   --out FOLDER/bf16 --profile --precision bf16
 *   --out FOLDER/short --memory 440MiB            a run that exceeds its memory budget in the second fold
 *
 * The pictures are in the package, which has to be small: `pngquant --force --ext .png 256 docs/images/*.png` makes them a third as large.
 */

import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openInspector } from "../src/inspect/index.js";
import { closeBrowser, openContext, type Page } from "../test/support/browser.js";

const images = fileURLToPath(new URL("../../docs/images/", import.meta.url));

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
    hash: "#/first/learning?with=lower-rate&with=bf16",
    height: 720,
    isDark: true,
    act: smoothLoss,
  },
  { file: "inspector-speed", hash: "#/first/speed", height: 1100 },
  { file: "inspector-passes", hash: "#/first/speed", height: 760, act: showPasses },
  { file: "inspector-memory", hash: "#/first/memory", height: 1100, act: hoverTensor },
  { file: "inspector-incidents", hash: "#/short/incidents", height: 760 },
  { file: "inspector-about", hash: "#/first/about", height: 900 },
  { file: "inspector-narrow", hash: "#/first/learning", width: 390, height: 844 },
];

const [, , folder = ""] = process.argv;
const missing = ["first", "lower-rate", "bf16", "short"].filter((run) => !existsSync(join(folder, run)));
if (missing.length > 0)
  throw new Error(
    `${folder || "The current folder"} has no runs ${missing.join(", ")}. Pass a folder with them.`,
  );
mkdirSync(images, { recursive: true });
const inspector = await openInspector({ root: folder });
try {
  for (const view of views) await takePicture(inspector.url.replace(/#.*$/, ""), view);
} finally {
  await closeBrowser();
  await inspector.close();
}

async function takePicture(url: string, view: View): Promise<void> {
  const { file, hash, width = 1280, height = 900, isDark = false, act } = view;
  const context = await openContext({ viewport: { width, height }, colorScheme: isDark ? "dark" : "light" });
  const page = await context.newPage();
  await page.goto(url + hash);
  await page.locator("#panel .figure").first().waitFor();
  // All data has arrived when no text says that it is loading.
  await page.evaluate(
    `(async () => { const isWaiting = () => /Reading|Loading/.test(document.body.innerText) || /–/.test(document.querySelector(".tiles").innerText);
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
  await page.evaluate(`document.querySelector('[data-figure="Compiler passes"]').scrollIntoView()`);
  await page.locator(".pass-list").getByText("verticalFusion", { exact: true }).first().click();
}

async function hoverTensor(page: Page): Promise<void> {
  const box = await page.locator(".plan-picture").boundingBox();
  if (box) await page.mouse.move(box.x + box.width * 0.36, box.y + box.height * 0.6);
}
