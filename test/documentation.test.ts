/** The documentation is true: its examples compile and print what they say, its links lead somewhere. */

import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import test, { after, describe, it } from "node:test";
import { generatedPages, settingsPage } from "../scripts/generated-docs.js";
import { compileExamples, runExample, typeProblems } from "./support/example-runs.js";
import { type Example, markdownExamples, promisedLines, sourceExamples } from "./support/examples.js";
import { undocumentedExports } from "./support/exported-docs.js";
import { relativeLinks } from "./support/markdown.js";
import { filesBelow, readRepositoryFile, repositoryRoot } from "./support/repository.js";

const pages = [
  ...readdirSync(repositoryRoot).filter((name) => name.endsWith(".md")),
  ...filesBelow("docs", ".md"),
  ...filesBelow("examples", ".md"),
];

// What the log of changes shows was true of its own version.
const pagesWithExamples = pages.filter((page) => page !== "CHANGELOG.md");

const examples = [
  ...pagesWithExamples.flatMap((file) => markdownExamples(file, readRepositoryFile(file))),
  ...filesBelow("src", ".ts").flatMap((file) => sourceExamples(file, readRepositoryFile(file))),
];

/** Examples with a known fault each, compiled along with the true ones: what the checks must find. */
const planted = {
  wrongPrint: plant('console.log("three"); // → 3'),
  missingPrint: plant('console.log("one"); // → one\n// → two'),
  crash: plant('throw new Error("planted");'),
  wrongType: plant('const count: number = "three";\nconsole.log(count);'),
  wrongName: plant('import { noSuchExport } from "holdfast";\nconsole.log(noSuchExport);'),
  bareExports: plant("export function bare() {}\n/** Says what it is. */\nexport class Described {}"),
} satisfies Record<string, Example>;

function plant(code: string): Example {
  return { name: "planted", code, notRun: undefined };
}

const allExamples = [...examples, ...Object.values(planted)];
const compiled = compileExamples(allExamples);
after(() => compiled.remove());

function fileOf(example: Example): string {
  return compiled.files[allExamples.indexOf(example)] ?? assert.fail(`${example.name} was not compiled.`);
}

/** Fails unless the example runs to its end and prints what it says. */
async function proveRun(example: Example): Promise<void> {
  const { lines, trouble } = await runExample(fileOf(example));
  assert.equal(trouble, "");
  const promised = promisedLines(example.code);
  if (promised.length > 0) assert.deepEqual(lines, promised);
}

describe("an example compiles and prints what it says", { concurrency: 2 }, () => {
  for (const example of examples) {
    it(example.name, async (t) => {
      assert.deepEqual(typeProblems(compiled.program, fileOf(example)), []);
      if (example.notRun === undefined) await proveRun(example);
      else t.skip(example.notRun);
    });
  }
});

test("there are examples in the pages and in the sources", () => {
  assert.ok(examples.some(({ name }) => name.startsWith("README.md")));
  assert.ok(examples.some(({ name }) => name.startsWith("src/")));
});

test("an example that prints something else, too little, or crashes is found", async () => {
  await assert.rejects(proveRun(planted.wrongPrint), /\+ {3}'three'\n- {3}'3'/);
  await assert.rejects(proveRun(planted.missingPrint), /- {3}'two'/);
  await assert.rejects(proveRun(planted.crash), /Error: planted/);
});

test("an example with a type error, or with an import that doesn't exist, is found", () => {
  assert.match(typeProblems(compiled.program, fileOf(planted.wrongType)).join(), /line 1: Type 'string'/);
  assert.match(typeProblems(compiled.program, fileOf(planted.wrongName)).join(), /no exported member/);
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

test("every exported function and class says what it is, and every function has an example", () => {
  const types = join(repositoryRoot, "dist/src/index.d.ts");
  assert.deepEqual(undocumentedExports(compiled.program, types), []);
});

test("an export without a summary or an example is found", () => {
  const problems = undocumentedExports(compiled.program, fileOf(planted.bareExports));
  assert.deepEqual(problems, ["bare has no summary.", "bare has no @example."]);
});

test("the published types need nothing that a user's program lacks", () => {
  const folder = join(repositoryRoot, "dist/src/");
  const files = compiled.program.getSourceFiles().map(({ fileName }) => fileName);
  const published = files.filter((file) => file.startsWith(folder));
  assert.ok(published.length > 0);
  const problems = published.map((file) => [file.slice(folder.length), typeProblems(compiled.program, file)]);
  assert.deepEqual(
    problems.filter(([, found]) => found?.length),
    [],
  );
});

test("relative links in the pages lead to files", () => {
  const broken = pages.flatMap((page) =>
    relativeLinks(readRepositoryFile(page))
      .filter((target) => !existsSync(join(repositoryRoot, dirname(page), target)))
      .map((target) => `${page} → ${target}`),
  );
  assert.deepEqual(broken, []);
});

test("relative links are told from addresses, anchors and code", () => {
  const markdown =
    "[a](docs/a.md#top) ![b](<b.png>) [c](https://example.com) [d](#here) `[e](e.md)`\n[f]: ../f.md\n";
  assert.deepEqual(relativeLinks(markdown), ["docs/a.md", "b.png", "../f.md"]);
});

describe("a generated page is what its table says; where it isn't, run npm run docs", () => {
  for (const [path, text] of Object.entries(generatedPages())) {
    it(path, () => assert.equal(readRepositoryFile(path), text));
  }
});

test("the page of settings tells each one's variable, option, default and example", () => {
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
