/**
 * The exported names of a module that lack the required documentation of public functions, classes and
 * members.
 */

import { ts } from "./typescript.js";

/**
 * One sentence for each function, class, method or getter without a summary or an example, also in
 * namespaces. A layer's `forward`, and all members of the classes in `shownWhole`, are covered by the example
 * of the class; names marked `@internal` need none.
 */
export function undocumentedExports(
  program: ts.Program,
  file: string,
  shownWhole: readonly string[] = [],
): string[] {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  if (module === undefined) return [`${file} is not a module of the program.`];
  const seen = new Set<ts.Symbol | ts.Declaration>();

  function problemsOfModule(namespace: ts.Symbol, prefix: string): string[] {
    return checker.getExportsOfModule(namespace).flatMap((exported) => {
      // Only the name of a type: users can't construct it, and the function that returns it shows its
      // members.
      if (exported.declarations?.some(ts.isTypeOnlyExportDeclaration)) return [];
      const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
      return problemsOfExport(
        isAlias ? checker.getAliasedSymbol(exported) : exported,
        prefix + exported.name,
      );
    });
  }

  function problemsOfExport(symbol: ts.Symbol, name: string): string[] {
    if (seen.has(symbol)) return [];
    seen.add(symbol);
    if (symbol.flags & ts.SymbolFlags.ValueModule) return problemsOfModule(symbol, `${name}.`);
    if (symbol.flags & ts.SymbolFlags.Class)
      return [...lacking(symbol, name), ...problemsOfMembers(symbol, name)];
    return isCallable(symbol) ? lacking(symbol, name) : [];
  }

  function isCallable(symbol: ts.Symbol): boolean {
    if (symbol.flags & ts.SymbolFlags.Function) return true;
    const isVariable = (symbol.flags & ts.SymbolFlags.Variable) !== 0;
    return isVariable && checker.getTypeOfSymbol(symbol).getCallSignatures().length > 0;
  }

  function problemsOfMembers(owner: ts.Symbol, ownerName: string): string[] {
    const members = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(owner));
    return members.filter(isPublicMember).flatMap((member) => {
      // Inherited members are checked once, under the name of their class.
      const [declaration] = member.declarations ?? [];
      if (declaration === undefined || seen.has(declaration)) return [];
      seen.add(declaration);
      const home = ts.isClassDeclaration(declaration.parent) ? declaration.parent.name?.text : undefined;
      const name = `${home === undefined || home === owner.name ? ownerName : home}.${member.name}`;
      const isShown = member.name === "forward" || shownWhole.includes(ownerName);
      return lacking(member, name, !isShown && !isInternal(member));
    });
  }

  function isInternal(symbol: ts.Symbol): boolean {
    return symbol.getJsDocTags(checker).some(({ name }) => name === "internal");
  }

  function lacking(symbol: ts.Symbol, name: string, needsExample = true): string[] {
    const hasSummary = symbol.getDocumentationComment(checker).length > 0;
    const hasExample = symbol.getJsDocTags(checker).some((tag) => tag.name === "example");
    return [
      ...(hasSummary ? [] : [`${name} has no summary.`]),
      ...(hasExample || !needsExample ? [] : [`${name} has no @example.`]),
    ];
  }

  return problemsOfModule(module, "");
}

/**
 * The exported names without a doc comment: functions, classes, constants, types and namespaces, and the
 * names that a namespace exports. A namespace has its comment at the top of its file.
 */
export function exportsWithoutComment(program: ts.Program, file: string): string[] {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  if (module === undefined) return [`${file} is not a module of the program.`];
  const seen = new Set<ts.Symbol>();

  function namesIn(namespace: ts.Symbol, prefix: string): string[] {
    return checker.getExportsOfModule(namespace).flatMap((exported) => {
      const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
      const symbol = isAlias ? checker.getAliasedSymbol(exported) : exported;
      if (seen.has(symbol)) return [];
      seen.add(symbol);
      const name = prefix + exported.name;
      const isNamespace = (symbol.flags & ts.SymbolFlags.ValueModule) !== 0;
      return [...(hasComment(symbol) ? [] : [name]), ...(isNamespace ? namesIn(symbol, `${name}.`) : [])];
    });
  }

  function hasComment(symbol: ts.Symbol): boolean {
    return (
      symbol.getDocumentationComment(checker).length > 0 ||
      (symbol.declarations ?? []).some((node) => ts.isSourceFile(node) && node.text.startsWith("/**"))
    );
  }

  return namesIn(module, "");
}

/** A method or a getter that completion offers: public, and not a symbol's. */
function isPublicMember(member: ts.Symbol): boolean {
  if (!(member.flags & (ts.SymbolFlags.Method | ts.SymbolFlags.Accessor)) || member.name.startsWith("__@")) {
    return false;
  }
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  return (member.declarations ?? []).every(
    (declaration) => !(ts.getCombinedModifierFlags(declaration) & hidden) && !isFromOutside(declaration),
  );
}

/** True if it comes from a library, like the members of Error. */
function isFromOutside(declaration: ts.Declaration): boolean {
  return declaration.getSourceFile().fileName.includes("/node_modules/");
}
