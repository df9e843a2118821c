/** The inspector's page in a real browser. Errors of a page fail the test that opened it. */

import assert from "node:assert/strict";
import { after, type TestContext } from "node:test";
import { openInspector } from "../../src/inspect/index.js";
import { type BrowserContext, closeBrowser, openContext, type Page } from "./browser.js";

after(closeBrowser);

/** Closed before the servers, because a lost stream is an error in a page. */
const contexts = new Set<BrowserContext>();

async function closePages(): Promise<void> {
  for (const context of contexts) await context.close();
  contexts.clear();
}

export interface PageOptions {
  readonly width?: number;
  readonly height?: number;
  readonly isDark?: boolean;
  /** Requests may fail: the test stops the server, or requests damaged files. */
  readonly mayFail?: boolean;
}

/** Opens a page and closes it after the test. Errors that the page throws or logs fail the test. */
export async function openPage(t: TestContext, url: string, options: PageOptions = {}): Promise<Page> {
  const { width = 1280, height = 900, isDark = false, mayFail = false } = options;
  const context = await openContext({
    viewport: { width, height },
    colorScheme: isDark ? "dark" : "light",
  });
  contexts.add(context);
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error.stack)));
  page.on("console", (message) => {
    const isRequest = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !(mayFail && isRequest))
      errors.push(`${message.text()} (${message.location().url})`);
  });
  t.after(async () => {
    await closePages();
    assert.deepEqual(errors, []);
  });
  await page.goto(url);
  return page;
}

/** Waits until an expression in the page is true, checking in every frame. */
export async function waitUntil(page: Page, expression: string): Promise<void> {
  const isTrue = await page.evaluate(`(async () => {
    const started = performance.now();
    while (!(${expression})) {
      if (performance.now() - started > 10_000) return false;
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    return true;
  })()`);
  assert.ok(isTrue, `Not true after 10 s: ${expression}`);
}

export interface Served {
  /** The page's address, without a run. */
  readonly url: string;
  readonly close: () => Promise<void>;
}

/** Serves a folder of runs until the test ends. */
export async function serve(t: TestContext, root: string, port = 0): Promise<Served> {
  const inspector = await openInspector({ root, port, pollMs: 100 });
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (isOpen) await inspector.close();
    isOpen = false;
  };
  t.after(async () => {
    await closePages();
    await close();
  });
  return { url: inspector.url.replace(/#.*$/, ""), close };
}

/** The file that a click saves. */
export async function saved(
  page: Page,
  click: () => Promise<void>,
): Promise<{ readonly name: string; readonly bytes: Buffer }> {
  const [download] = await Promise.all([page.waitForEvent("download"), click()]);
  const chunks: Buffer[] = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  return { name: download.suggestedFilename(), bytes: Buffer.concat(chunks) };
}
