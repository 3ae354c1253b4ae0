// Styles for xterm.js under the policy of the page, which allows no <style> element and no style attribute, since a
// file's name that got into the markup could bring them too. xterm.js uses both; with allow it gets the same by
// constructed style sheets and by properties, which only a script of this page can set.

// styled does what setAttribute does, with the text of a style attribute as properties.
function styled(name, value) {
  if (name === 'style') this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

// sheet returns an element that shows nothing, whose text is a style sheet until it is removed.
function sheet() {
  const e = Document.prototype.createElement.call(document, 'template'), rules = new CSSStyleSheet();
  Object.defineProperty(e, 'textContent', {set(text) { rules.replaceSync(text); }});
  e.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(r => r !== rules);
    Element.prototype.remove.call(e);
  };
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, rules];
  return e;
}

// allow makes the elements that xterm.js styles from now on usable for it. The page itself makes none of these.
export function allow() {
  document.createElement = (name, options) => {
    if (name === 'style') return sheet();
    const e = Document.prototype.createElement.call(document, name, options);
    if (name === 'span') e.setAttribute = styled;
    return e;
  };
}
