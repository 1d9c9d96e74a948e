// node dom.js PAGE: runs a page's scripts on a document of which only texts count, and prints these, a section a line.
const fs = require('fs');
const html = fs.readFileSync(process.argv[2], 'utf8');
const within = pattern => html.match(pattern)[1];

class Element {
  constructor(name) { Object.assign(this, {name, children: [], style: {}, clientWidth: 800, parentElement: {id: ''}}); }
  append(...children) { this.children.push(...children); }
  prepend(...children) { this.children.unshift(...children); }
  replaceChildren(...children) { this.children = children; }
  setAttribute() {}
  addEventListener() {}
  contains() { return false; }
  getContext() { return new Proxy({}, {get: (_, key) => () => key === 'measureText' ? {width: 10} : undefined, set: () => true}); }
  get childElementCount() { return this.children.length; }
  get textContent() { return this.children.map(child => child instanceof Element ? child.textContent : child).join(' '); }
  set textContent(text) { this.children = [text]; }
  querySelectorAll(selector) {
    const wanted = selector.split(',').map(one => one.trim().split(' ').pop());
    const inside = this.children.filter(child => child instanceof Element);
    return inside.flatMap(child => [...(wanted.includes(child.name) ? [child] : []), ...child.querySelectorAll(selector)]);
  }
}

const byId = {data: {textContent: within(/<script type="application\/json" id="data">([^]*?)<\/script>/)}};
Object.assign(globalThis, {
  Node: Element, ResizeObserver: class { observe() {} }, window: {}, location: {search: ''},
  getComputedStyle: () => ({getPropertyValue: () => '#112233'}), matchMedia: () => ({addEventListener() {}}),
  document: {
    createElement: name => new Element(name), getElementById: id => byId[id] ??= new Element(id),
    querySelectorAll: selector => byId.main.querySelectorAll(selector), documentElement: {},
  },
});
(0, eval)(within(/<script>([^]*?)<\/script>\s*<\/body>/));
console.log(byId.head.textContent.replaceAll('\n', ' '));
for (const section of byId.main.children) if (section.children.length) console.log(section.textContent.replaceAll('\n', ' '));
