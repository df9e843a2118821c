/** The inspector's page in a real browser. Errors of a page fail the test that opened it. */

import assert from "node:assert/strict";
import { after, type TestContext } from "node:test";
import { openInspector } from "../../src/inspect/index.js";
import { type BrowserContext, closeBrowser, openContext, type Page } from "./browser.js";

after(closeBrowser);

interface OpenedPage {
  /** Its options, as a text. */
  readonly key: string;
  readonly page: Page;
  readonly context: BrowserContext;
  /** What the page has thrown or logged since its test began. */
  readonly errors: string[];
}

/** Pages that the next test uses again, by their options: to open a browser's process takes longer than most tests. */
const idle = new Map<string, OpenedPage>();

/** The pages of the current test. They are left before its servers end, because a lost stream is an error in a page. */
const busy = new Set<OpenedPage>();

async function leavePages(): Promise<void> {
  for (const opened of busy) {
    await opened.page.goto("about:blank");
    if (idle.has(opened.key)) await opened.context.close();
    else idle.set(opened.key, opened);
  }
  busy.clear();
}

export interface PageOptions {
  readonly width?: number;
  readonly height?: number;
  readonly isDark?: boolean;
  /** Requests may fail: the test stops the server, or requests damaged files. */
  readonly mayFail?: boolean;
}

/** Opens a page for a test. Errors that the page throws or logs fail the test. */
export async function openPage(t: TestContext, url: string, options: PageOptions = {}): Promise<Page> {
  const { width = 1280, height = 900, isDark = false, mayFail = false } = options;
  const all = { width, height, isDark, mayFail };
  const opened = idle.get(keyOf(all)) ?? (await openNewPage(all));
  idle.delete(opened.key);
  busy.add(opened);
  const { page, errors } = opened;
  errors.length = 0;
  page.setDefaultTimeout(10_000);
  t.after(async () => {
    await leavePages();
    assert.deepEqual(errors, []);
  });
  await page.goto(url);
  return page;
}

function keyOf({ width, height, isDark, mayFail }: Required<PageOptions>): string {
  return [width, height, isDark, mayFail].join();
}

async function openNewPage(options: Required<PageOptions>): Promise<OpenedPage> {
  const { width, height, isDark, mayFail } = options;
  const context = await openContext({
    viewport: { width, height },
    colorScheme: isDark ? "dark" : "light",
  });
  const page = await context.newPage();
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(String(error.stack)));
  page.on("console", (message) => {
    const isRequest = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !(mayFail && isRequest))
      errors.push(`${message.text()} (${message.location().url})`);
  });
  return { key: keyOf(options), page, context, errors };
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
    await leavePages();
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
