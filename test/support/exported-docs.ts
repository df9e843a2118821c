/** Which exports of a module lack the documentation that every public function and class must carry. */

import ts from "typescript";

/** One sentence for each exported function or class without a summary, and for each function without an example. */
export function undocumentedExports(program: ts.Program, file: string): string[] {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  if (module === undefined) return [`${file} is not a module of the program.`];
  return checker.getExportsOfModule(module).flatMap((exported) => {
    const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
    const symbol = isAlias ? checker.getAliasedSymbol(exported) : exported;
    const isFunction = (symbol.flags & ts.SymbolFlags.Function) !== 0;
    const isClass = (symbol.flags & ts.SymbolFlags.Class) !== 0;
    const problems: string[] = [];
    if ((isFunction || isClass) && symbol.getDocumentationComment(checker).length === 0) {
      problems.push(`${exported.name} has no summary.`);
    }
    if (isFunction && !symbol.getJsDocTags(checker).some(({ name }) => name === "example")) {
      problems.push(`${exported.name} has no @example.`);
    }
    return problems;
  });
}
