// The look of tables, once a page, and what is narrower on a phone. Each cell of a saved table would carry it else, which was half of a notebook. Where no script
// runs, a cell keeps its side and its colour, and the page has a look of its own. Three classes outweigh JupyterLab's rules.

const TABLE = '.profnb.profnb.profnb table[cellpadding]', MANY_COLUMNS = `${TABLE}:has(tr>:nth-child(5))`;
const LOOK = `${TABLE}{border-collapse:collapse;margin:4px 0;color:inherit;font-size:inherit}
${TABLE} :is(td,th){padding:3px 10px;border:0;border-bottom:1px solid rgba(128,128,128,.25);background:none;font-weight:normal}
${TABLE} :is(td,th)[align=right]{text-align:right;font-variant-numeric:tabular-nums}
${TABLE} td[align=right]:not([role]){white-space:nowrap}
${TABLE}:has(td[style$="white-space:pre"]) td:not([role]){border-bottom:0;padding-top:0;padding-bottom:0}
${TABLE} td>[aria-hidden]{letter-spacing:-1px;white-space:pre;font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace}
.profnb-clip{display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:var(--profnb-lines,99);overflow:hidden}
@media (max-width:600px){
${TABLE} :is(td,th){padding:3px 4px}
${TABLE} td>[aria-hidden]{font-size:7px}
${TABLE} td[style*="white-space:pre"]{white-space:pre-wrap!important;overflow-wrap:anywhere}
${MANY_COLUMNS},${MANY_COLUMNS}>tbody{display:block}
${MANY_COLUMNS} tr{display:flex;flex-wrap:wrap;border-bottom:1px solid rgba(128,128,128,.25);padding:2px 0}
${MANY_COLUMNS} tr>:is(td,th){flex:1 1 60px;min-width:0;border:0;padding:1px 2px;overflow-wrap:anywhere;white-space:normal!important}
${MANY_COLUMNS} :is(th,td[role]){font-size:12px}
${MANY_COLUMNS} tr>:first-child:not([colspan]){flex:0 0 44px;overflow:hidden}
${MANY_COLUMNS} tr>:nth-child(2){flex:1 1 calc(100% - 60px)}
.profnb-bar{display:grid;grid-template-columns:1fr 1fr;gap:4px}
.profnb-bar>*{margin:0!important;width:auto!important;min-width:0;max-width:none!important}
.profnb-bar>:is([type=search],select:only-of-type){grid-column:1/-1}
.profnb [role=heading][aria-level="2"]{font-size:16px!important}
.profnb [role=heading][aria-level="2"]>span{display:inline!important}
}`;

function showLook() {
  let sheet = document.getElementById('profnb-look');
  if (!sheet) {
    sheet = addElement('style', document.head, '');
    sheet.id = 'profnb-look';
  }
  sheet.textContent = LOOK;
}
showLook();
