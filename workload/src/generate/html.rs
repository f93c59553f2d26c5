//! Generates pages of programming documentation: heavy markup around prose and signatures.

use super::text::Text;

pub(super) fn generate(mut text: Text) -> Vec<u8> {
    while !text.is_full() {
        page(&mut text);
    }
    text.finish()
}

fn page(text: &mut Text) {
    let module = text.rare_word();
    text.put_format(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n<title>{module} \
         \u{2014} reference manual</title>\n<link rel=\"stylesheet\" type=\"text/css\" \
         href=\"../static/manual.css\" />\n<script src=\"../static/search.js\"></script>\n\
         <link rel=\"index\" title=\"Index\" href=\"../index-all.html\" />\n</head><body>\n\
         <nav class=\"related\" role=\"navigation\" aria-label=\"Related\">\n"
    ));
    for _ in 0..6 {
        let other = text.rare_word();
        text.put_format(format_args!(
            "<li class=\"toctree-l1\"><a class=\"reference internal\" href=\"{other}.html\">\
             {other}</a></li>\n"
        ));
    }
    text.put_format(format_args!("</nav>\n<section id=\"module-{module}\">\n<h1>"));
    sentence(text, 4);
    text.put("</h1>\n");
    for _ in 0..text.number(20, 60) {
        match text.number(0, 9) {
            0..=4 => definition(text, module),
            5..=7 => paragraph(text),
            _ => listing(text, module),
        }
        if text.is_full() {
            return;
        }
    }
    text.put("</section>\n<footer class=\"footer\">Last updated by the manual's build.</footer>\n");
    text.put("</body></html>\n");
}

fn definition(text: &mut Text, module: &str) {
    let (kind, name) = (text.one_of(&["function", "method", "class", "data"]), text.rare_word());
    let suffix = text.rare_word();
    text.put_format(format_args!(
        "<dl class=\"std {kind}\">\n<dt class=\"signature\" id=\"{module}.{name}_{suffix}\">\n\
         <span class=\"prename\"><span class=\"pre\">{module}.</span></span>\
         <span class=\"name\"><span class=\"pre\">{name}_{suffix}</span></span>\
         <span class=\"paren\">(</span>"
    ));
    for _ in 0..text.number(0, 3) {
        let parameter = text.rare_word();
        text.put_format(format_args!(
            "<em class=\"parameter\"><span class=\"pre\">{parameter}</span></em>, "
        ));
    }
    text.put_format(format_args!(
        "<span class=\"paren\">)</span><a class=\"headerlink\" href=\"#{module}.{name}_{suffix}\" \
         title=\"Link to this definition\">\u{b6}</a></dt>\n<dd>"
    ));
    paragraph(text);
    text.put("</dd></dl>\n\n");
}

fn paragraph(text: &mut Text) {
    text.put("<p>");
    for _ in 0..text.number(1, 3) {
        let words = text.number(6, 22);
        sentence(text, words);
        text.put(". ");
        if text.chance(0.6) {
            let (name, other) = (text.rare_word(), text.word());
            text.put_format(format_args!(
                "<a class=\"reference internal\" href=\"{name}.html#{name}.{other}\" \
                 title=\"{name}.{other}\"><code class=\"literal notranslate\">\
                 <span class=\"pre\">{name}.{other}</span></code></a> "
            ));
        }
    }
    text.put("</p>\n");
}

fn listing(text: &mut Text, module: &str) {
    text.put("<div class=\"highlight notranslate\"><pre>");
    for _ in 0..text.number(2, 6) {
        let (name, call) = (text.word(), text.rare_word());
        text.put_format(format_args!(
            "<span class=\"gp\">&gt;&gt;&gt; </span><span class=\"n\">{name}</span> \
             <span class=\"o\">=</span> <span class=\"n\">{module}</span>\
             <span class=\"o\">.</span><span class=\"n\">{call}</span><span class=\"p\">()</span>\n"
        ));
    }
    text.put("</pre></div>\n");
}

fn sentence(text: &mut Text, words: u64) {
    for position in 0..words {
        if position > 0 {
            text.put(" ");
        }
        let word = text.word();
        text.put(word);
    }
}
