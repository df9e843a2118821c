/** The inspector's page in a real browser. Errors of a page fail the test that opened it. */

import assert from "node:assert/strict";
import { after, type TestContext } from "node:test";
import { type Inspector, openInspector } from "../../src/inspect/index.js";
import { type BrowserContext, closeBrowser, openContext, type Page } from "./browser.js";
import { generousTimeoutMs } from "./timeouts.js";

after(closeBrowser);

/** A browser may open a connection early, and a slow machine may send the first request on it late. */
const serving = { pollMs: 100, headerTimeoutMs: generousTimeoutMs } as const;

interface OpenedPage {
  readonly page: Page;
  readonly context: BrowserContext;
  /** What the page has thrown or logged since its test began. */
  readonly errors: string[];
  /** Whether requests may fail in the current test. */
  mayFail: boolean;
}

/** A page that the next test uses again: to open a browser's process takes longer than most tests. */
let idle: OpenedPage | undefined;

/** The pages of the current test. They are left before its servers end, because a lost stream is an error in a page. */
const busy = new Set<OpenedPage>();

async function leavePages(): Promise<void> {
  for (const opened of busy) {
    await opened.page.goto("about:blank");
    if (idle) await opened.context.close();
    else idle = opened;
  }
  busy.clear();
}

/** Opens a page for a test. Errors that the page throws or logs fail the test. */
export async function openPage(t: TestContext, url: string): Promise<Page> {
  const opened = idle ?? (await openNewPage());
  idle = undefined;
  busy.add(opened);
  opened.errors.length = 0;
  opened.page.setDefaultTimeout(generousTimeoutMs);
  t.after(async () => {
    await leavePages();
    assert.deepEqual(opened.errors, []);
  });
  await opened.page.goto(url);
  return opened.page;
}

async function openNewPage(): Promise<OpenedPage> {
  const context = await openContext({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
  const page = await context.newPage();
  const opened: OpenedPage = { page, context, errors: [], mayFail: false };
  page.on("pageerror", (error) => opened.errors.push(String(error.stack)));
  page.on("console", (message) => {
    const isRequest = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !(opened.mayFail && isRequest))
      opened.errors.push(`${message.text()} (${message.location().url})`);
  });
  return opened;
}

/** A page and its server, which the tests of a file share: a page that stays open loads once. */
export class SharedPage {
  readonly #root: string;
  #server: Promise<Inspector> | undefined;
  #opened: Promise<OpenedPage> | undefined;
  /** Where the server was started first. */
  #url: string | undefined;

  constructor(root: string) {
    this.#root = root;
    after(() => this.stopServer());
  }

  /**
   * Shows a route, such as "first/memory". Errors that the page throws or logs until the test's end fail the test. Requests may fail
   * where the test stops the server, or requests damaged files.
   */
  async show(t: TestContext, route: string, { mayFail = false } = {}): Promise<Page> {
    await this.startServer();
    this.#opened ??= openNewPage();
    const opened = await this.#opened;
    opened.mayFail = mayFail;
    opened.errors.length = 0;
    opened.page.setDefaultTimeout(generousTimeoutMs);
    t.after(() => assert.deepEqual(opened.errors, []));
    await this.goTo(route);
    return opened.page;
  }

  /** Shows another route in the same test. */
  async goTo(route: string): Promise<void> {
    await (await this.#opened)?.page.goto(`${this.#url}#/${route}`);
  }

  async startServer(): Promise<void> {
    const port = this.#url === undefined ? 0 : Number(new URL(this.#url).port);
    this.#server ??= openInspector({ root: this.#root, port, ...serving });
    this.#url = addressOf(await this.#server);
  }

  async stopServer(): Promise<void> {
    await (await this.#server)?.close();
    this.#server = undefined;
  }
}

/** Waits until an expression in the page is true, checking in every frame. */
export async function waitUntil(page: Page, expression: string): Promise<void> {
  const isTrue = await page.evaluate(`(async () => {
    const started = performance.now();
    while (!(${expression})) {
      if (performance.now() - started > ${generousTimeoutMs}) return false;
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    return true;
  })()`);
  assert.ok(isTrue, `Not true after ${generousTimeoutMs} ms: ${expression}`);
}

export interface Served {
  /** The page's address, without a run. */
  readonly url: string;
  readonly close: () => Promise<void>;
}

/** Serves a folder of runs until the test ends. */
export async function serve(t: TestContext, root: string, port = 0): Promise<Served> {
  const inspector = await openInspector({ root, port, ...serving });
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (isOpen) await inspector.close();
    isOpen = false;
  };
  t.after(async () => {
    await leavePages();
    await close();
  });
  return { url: addressOf(inspector), close };
}

/** The page's address, without a run. */
function addressOf({ url }: Inspector): string {
  return url.replace(/#.*$/, "");
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
