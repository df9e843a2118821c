/** The documentation is true: its examples compile and print what they claim, and its links lead somewhere. */

import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import test, { after, describe, it } from "node:test";
import { generatedPages, replaceTable, settingsPage } from "../../scripts/generated-docs.js";
import { compiledFile, compileExamples } from "../support/compile-examples.js";
import { isThorough } from "../support/effort.js";
import { type Example, markdownExamples, promisedLines, sourceExamples } from "../support/examples.js";
import { exportsWithoutComment, undocumentedExports } from "../support/exported-docs.js";
import { anchorLinks, headingAnchors, proseLines, relativeLinks } from "../support/markdown.js";
import { filesBelow, readRepositoryFile, repositoryRoot } from "../support/repository.js";
import { type ExampleRun, runExamples } from "../support/run-examples.js";
import { generousTimeoutMs } from "../support/timeouts.js";
import type { ts } from "../support/typescript.js";

const pages = [
  ...readdirSync(repositoryRoot).filter((name) => name.endsWith(".md")),
  ...filesBelow("docs", ".md"),
  ...filesBelow("deploy", ".md"),
  ...filesBelow("bench/notes", ".md"),
];

// Examples in the changelog were true for their version.
const pagesWithExamples = pages.filter((page) => page !== "CHANGELOG.md");

const sources = filesBelow("src", ".ts");
/** The first name below src/: a folder, or a file of its own. */
const layerOf = (file: string): string => file.split("/")[1] ?? file;
const layers = [...new Set(sources.map(layerOf))];

/** The examples of each page, and of the sources of each layer. */
const examplesByPlace = [
  ...pagesWithExamples.map((file) => markdownExamples(file, readRepositoryFile(file))),
  ...layers.map((layer) =>
    sources
      .filter((file) => layerOf(file) === layer)
      .flatMap((file) => sourceExamples(file, readRepositoryFile(file))),
  ),
];
const examples = examplesByPlace.flat();

/** TEST_SEED=number repeats a sample. */
const seed = Number(process.env["TEST_SEED"] ?? Date.now() % 100_000);

function canRun({ notRun }: Example): boolean {
  return notRun === undefined;
}

/** Of the examples that can run, every so many. */
const sampleStep = 10;

/** Every tenth example that can run, from an index that the seed chooses; at least one if there is one. */
function sampleOf(inPlace: readonly Example[]): readonly Example[] {
  const runnable = inPlace.filter(canRun);
  const first = seed % Math.min(sampleStep, runnable.length);
  return runnable.filter((_, index) => index % sampleStep === first);
}

/** The examples that run: `npm run test:long` runs all of them. */
const chosen = new Set(isThorough ? examples.filter(canRun) : examplesByPlace.flatMap(sampleOf));

const drawing =
  'import { nn } from "holdfast";\nconsole.log(new nn.Parameter([1], nn.init.normal()).initialValues());';

/** Examples with one fault each, compiled along with the true ones: the checks must find them. */
const injected = {
  wrongPrint: inject('console.log("three"); // → 3'),
  missingPrint: inject('console.log("one"); // → one\n// → two'),
  crash: inject('throw new Error("injected");'),
  lateCrash: inject('void Promise.reject(new Error("injected late"));'),
  exit: inject('console.log("before the end");\nprocess.exit(0);'),
  endlessWait: inject("await new Promise(() => {});"),
  endlessLoop: inject("for (;;) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);"),
  openDevice: inject('import { device } from "holdfast";\nawait device("cpu", { print: () => {} });'),
  drawn: inject(drawing),
  drawnAgain: inject(drawing),
  fine: inject('console.log("fine"); // → fine'),
  wrongType: inject('const count: number = "three";\nconsole.log(count);'),
  wrongName: inject('import { noSuchExport } from "holdfast";\nconsole.log(noSuchExport);'),
  bareExports: inject(
    [
      "export function bare() {}",
      "/** Says what it is. */",
      "export class Described {",
      "  get size() { return 0; }",
      "  /** Says what it does. */",
      "  move() {}",
      "  /** Computes. */",
      "  forward() {}",
      "  /** @internal */",
      "  settle() {}",
      "  protected hidden() {}",
      "  readonly field = 1;",
      "}",
      "/** Has both.\n * @example\n * bare();\n */",
      "export const shown = () => {};",
      "export namespace inner {",
      "  export function lost() {}",
      "}",
    ].join("\n"),
  ),
  bareNames: inject(
    [
      "export const bare = 1;",
      "export interface Shape { readonly rows: number }",
      "/** Has a comment. */",
      "export type Described = Shape;",
      "export namespace inner {",
      "  export const lost = 2;",
      "}",
    ].join("\n"),
  ),
} satisfies Record<string, Example>;

function inject(code: string): Example {
  return { name: "injected", code, notRun: undefined };
}

const allExamples = [...examples, ...Object.values(injected)];
const compiled = compileExamples(
  allExamples,
  (example) => chosen.has(example) || Object.values<Example>(injected).includes(example),
);
after(() => compiled.remove());

function fileOf(example: Example): string {
  return compiled.files[allExamples.indexOf(example)] ?? assert.fail(`${example.name} was not compiled.`);
}

async function typeProblems(file: string): Promise<readonly string[]> {
  return (await compiled.typeProblems).get(file) ?? [];
}

/** Only the example that never ends has a short time limit: on a slow machine the others may take long. */
function start(run: readonly Example[]): ReadonlyMap<Example, Promise<ExampleRun>> {
  const files = run.map((example) => compiledFile(fileOf(example)));
  const timeLimitsMs = run.map((example) => (example === injected.endlessLoop ? 1000 : generousTimeoutMs));
  const runs = runExamples(files, { timeLimitsMs });
  return new Map(run.map((example, index) => [example, runs[index] ?? assert.fail(example.name)]));
}

/** Fails unless the example runs to its end and prints what it claims. */
async function checkRun(example: Example, runs: ReadonlyMap<Example, Promise<ExampleRun>>): Promise<void> {
  const { lines, failure } = (await runs.get(example)) ?? assert.fail(`${example.name} was not started.`);
  assert.equal(failure, "");
  const promised = promisedLines(example.code);
  if (promised.length > 0) assert.deepEqual(lines, promised);
}

const { wrongPrint, missingPrint, crash, fine, drawn, openDevice, drawnAgain } = injected;
const { exit, lateCrash, endlessWait, endlessLoop } = injected;

/** The injected examples come last: what they do to their process doesn't matter to the true ones. */
const runs = start([...chosen, wrongPrint, missingPrint, crash, fine, drawn, openDevice, drawnAgain]);
const ending = start([exit, lateCrash, endlessWait, endlessLoop, fine]);

describe("an example compiles and prints what it claims", () => {
  for (const example of examples) {
    it(example.name, async (t) => {
      assert.deepEqual(await typeProblems(fileOf(example)), []);
      if (chosen.has(example)) await checkRun(example, runs);
      else if (example.notRun !== undefined) t.skip(example.notRun);
    });
  }
});

test("an example of every page and of every layer of the sources is run, if it has some", (t) => {
  t.diagnostic(`TEST_SEED=${seed}: ${chosen.size} of ${examples.length} examples`);
  const withoutRun = examplesByPlace.filter(
    (inPlace) => inPlace.some(canRun) && !inPlace.some((example) => chosen.has(example)),
  );
  assert.deepEqual(withoutRun, []);
  assert.ok(examples.some(({ name }) => name.startsWith("README.md")));
  assert.ok(examples.some(({ name }) => name.startsWith("src/")));
});

test("an example that prints something else, too little, or crashes is found", async () => {
  await assert.rejects(checkRun(wrongPrint, runs), /\+ {3}'three'\n- {3}'3'/);
  await assert.rejects(checkRun(missingPrint, runs), /- {3}'two'/);
  await assert.rejects(checkRun(crash, runs), /Error: injected/);
  await checkRun(fine, runs);
});

test("an example that ends the process, or never ends, is named, and the later ones run", async () => {
  await assert.rejects(checkRun(exit, ending), /ended its process, with code 0/);
  await assert.rejects(checkRun(lateCrash, ending), /with code 1[\s\S]*injected late/);
  await assert.rejects(checkRun(endlessWait, ending), /with code 13/);
  await assert.rejects(checkRun(endlessLoop, ending), /longer than 1 s/);
  await checkRun(fine, ending);
});

test("an example that leaves its device open is named, and each example starts like a fresh process", async () => {
  await assert.rejects(checkRun(openDevice, runs), /left 1 device/);
  const first = await runs.get(drawn);
  assert.match(first?.lines.join() ?? "", /Float32Array/);
  assert.deepEqual(await runs.get(drawnAgain), first);
});

test("an example with a type error, or with an import that doesn't exist, is found", async () => {
  assert.match((await typeProblems(fileOf(injected.wrongType))).join(), /line 1: Type 'string'/);
  assert.match((await typeProblems(fileOf(injected.wrongName))).join(), /no exported member/);
});

test("examples are read from Markdown with their headings and from TSDoc with their symbols", () => {
  const code = 'console.log("```"); // → ```';
  const markdown = `# Top\n\n## Steps\n<!-- not run: needs two GPUs -->\n\n\`\`\`ts\n${code}\n\`\`\`\n\`\`\`sh\nls\n\`\`\`\n`;
  assert.deepEqual(markdownExamples("a.md", markdown), [
    { name: "a.md:7 Steps", code, notRun: "needs two GPUs" },
  ]);
  const source = `/** The file. */\n\nexport class Arena {\n  /**\n   * Resets.\n   *\n   * @example\n   * \`\`\`ts\n   * ${code}\n   *   indented();\n   * \`\`\`\n   */\n  reset() {}\n}\n`;
  assert.deepEqual(sourceExamples("a.ts", source), [
    { name: "a.ts:9 Arena.reset", code: `${code}\n  indented();`, notRun: undefined },
  ]);
  assert.deepEqual(promisedLines(`${code}\nplain();\n// → more`), ["```", "more"]);
});

/** The declarations of every entry point that the package exports. */
const publishedTypes = Object.values(
  (JSON.parse(readRepositoryFile("package.json")) as { exports: Record<string, { types?: string }> }).exports,
).flatMap(({ types }) => (types === undefined ? [] : [join(repositoryRoot, types)]));

let program: ts.Program | undefined;

/** The published types and the injected exports; created at the first call, so that the examples run in the meantime. */
function declarations(): ts.Program {
  program ??= compiled.createProgram([
    ...publishedTypes,
    fileOf(injected.bareExports),
    fileOf(injected.bareNames),
  ]);
  return program;
}

describe("an entry point of the package is documented", () => {
  for (const types of publishedTypes) {
    const name = types.slice(repositoryRoot.length);
    it(`${name}: every exported function, class, method and getter has a summary and an example`, () => {
      // The layers below tensors, for programs that build on them.
      assert.deepEqual(undocumentedExports(declarations(), types, ["Runtime", "SavedSet"]), []);
    });
    it(`${name}: every exported name has a doc comment`, () => {
      assert.deepEqual(exportsWithoutComment(declarations(), types), []);
    });
  }
});

test("the package has an entry point", () => {
  assert.ok(publishedTypes.some((types) => types.endsWith("dist/src/index.d.ts")));
});

test("a function, class, method or getter without a summary or an example is found", () => {
  const file = fileOf(injected.bareExports);
  assert.deepEqual(undocumentedExports(declarations(), file), [
    "bare has no summary.",
    "bare has no @example.",
    "Described has no @example.",
    "Described.size has no summary.",
    "Described.size has no @example.",
    "Described.move has no @example.",
    "Described.settle has no summary.",
    "inner.lost has no summary.",
    "inner.lost has no @example.",
  ]);
  const shown = undocumentedExports(declarations(), file, ["Described"]);
  assert.ok(shown.includes("Described.size has no summary."));
  assert.ok(!shown.includes("Described.move has no @example."));
});

test("an exported name without a doc comment is found, also in a namespace and as a type", () => {
  assert.deepEqual(exportsWithoutComment(declarations(), fileOf(injected.bareNames)), [
    "bare",
    "Shape",
    "inner",
    "inner.lost",
  ]);
});

test("the published types need nothing that a user's program lacks", async () => {
  const folder = join(repositoryRoot, "dist/src/");
  const files = declarations()
    .getSourceFiles()
    .map(({ fileName }) => fileName);
  assert.ok(files.some((file) => file.startsWith(folder)));
  const problems = [...(await compiled.typeProblems)].filter(([file]) => file.startsWith(folder));
  assert.deepEqual(problems, []);
});

test("relative links in the pages lead to files", () => {
  const broken = pages.flatMap((page) =>
    relativeLinks(readRepositoryFile(page))
      .filter((target) => !existsSync(join(repositoryRoot, dirname(page), target)))
      .map((target) => `${page} → ${target}`),
  );
  assert.deepEqual(broken, []);
});

test("links to a heading lead to one", () => {
  const broken = pages.flatMap((page) =>
    anchorLinks(readRepositoryFile(page))
      .filter(({ path, anchor }) => {
        const target = path === "" ? page : join(dirname(page), path);
        return target.endsWith(".md") && !headingAnchors(readRepositoryFile(target)).includes(anchor);
      })
      .map(({ path, anchor }) => `${page} → ${path}#${anchor}`),
  );
  assert.deepEqual(broken, []);
});

test("a heading's anchor is what GitHub makes of it", () => {
  const markdown = "# `memory()`: bytes, and more\n```sh\n# no heading\n```\n## Exit codes\n## Exit codes\n";
  assert.deepEqual(headingAnchors(markdown), ["memory-bytes-and-more", "exit-codes", "exit-codes-1"]);
  assert.deepEqual(anchorLinks("[a](x.md#exit-codes) [b](#here) [c](y.md) `[d](z.md#no)`"), [
    { path: "x.md", anchor: "exit-codes" },
    { path: "", anchor: "here" },
  ]);
});

test("the page on the architecture lists every layer", () => {
  const page = readRepositoryFile("docs/internals/architecture.md");
  assert.deepEqual(
    layers.filter((name) => !name.endsWith(".ts") && !new RegExp(`^  (\\w+/ )*${name}/ `, "m").test(page)),
    [],
  );
});

const maxProseLine = 400;

/** Lines of prose that are too long for an editor; tables can't be wrapped. */
function longLines(markdown: string): string[] {
  return proseLines(markdown).filter((line) => line.length > maxProseLine && !line.startsWith("|"));
}

test(`no line of prose has more than ${maxProseLine} characters`, () => {
  assert.deepEqual(
    pages.filter((page) => longLines(readRepositoryFile(page)).length > 0),
    [],
  );
  assert.equal(longLines(`${"word ".repeat(100)}\n| ${"cell ".repeat(100)} |\n`).length, 1);
});

test("relative links are distinguished from addresses, anchors and code", () => {
  const markdown =
    "[a](docs/a.md#top) ![b](<b.png>) [c](https://example.com) [d](#here) `[e](e.md)`\n[f]: ../f.md\n";
  assert.deepEqual(relativeLinks(markdown), ["docs/a.md", "b.png", "../f.md"]);
});

describe("a generated page matches the code; if it does not, run npm run docs", () => {
  for (const [path, text] of Object.entries(generatedPages(readRepositoryFile))) {
    it(path, () => assert.equal(readRepositoryFile(path), text));
  }
});

test("a generated table replaces the one after its notice, and nothing else", () => {
  const notice = "<!-- Generated from a.ts by `npm run docs`: change the table, not this page. -->";
  const page = (table: string): string => `Before.\n\n${notice}\n\n${table}\n\nAfter.\n`;
  assert.equal(replaceTable(page("| old |"), "a.ts", "| new |"), page("| new |"));
  assert.throws(() => replaceTable("No table.\n", "a.ts", "| new |"), /no table from a\.ts/);
});

test("the page of settings has each setting's variable, option, default and example", () => {
  const memory = {
    variable: "HOLDFAST_MEMORY",
    kind: "size | auto",
    defaultText: "auto",
    meaning: "The budget.",
    example: "64GiB",
  };
  const text = settingsPage({ memory });
  assert.match(text, /^## HOLDFAST_MEMORY\n\nThe budget\.\n\n- \*\*Option:\*\* `memory`$/m);
  assert.match(text, /^- \*\*Default:\*\* auto\n- \*\*Example:\*\* `HOLDFAST_MEMORY=64GiB`$/m);
});
