//! A report as one page that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! It is made for a screen as wide as a laptop's, for a telephone and for paper, light and dark as its
//! reader likes it.

mod table;

pub use table::{Cell, Table};

use crate::chart::{escape, style};

const RULES: &str = include_str!("page/style.css");

/// What a page consists of. The title and the parts' names are text; everything else is markup.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// A paragraph below it, or nothing.
    pub about: String,
    /// The numbers that everybody wants first, or nothing.
    pub key: String,
    /// The sections, each with an entry in the list at the top.
    pub parts: Vec<Part>,
    /// A sentence at the end.
    pub footer: String,
}

/// A section of the page.
#[derive(Clone, Debug)]
pub struct Part {
    /// Unique in its page.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// HTML without the heading.
    pub body: String,
}

impl Page {
    /// The whole document.
    pub fn html(&self) -> String {
        let Page { title, about, key, parts, footer } = self;
        let title = escape(title);
        let links: String = parts
            .iter()
            .map(|part| format!("<a href=\"#{}\">{}</a>", part.id, part.title))
            .collect();
        let sections: String = parts.iter().map(Part::html).collect();
        let chart_rules = style::css();
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <link rel=\"icon\" href=\"data:,\"><title>{title}</title>\
             <style>\n{chart_rules}{RULES}</style></head>\n<body><header><h1>{title}</h1>{about}<nav>{links}</nav>{key}\
             </header>\n<main>{sections}</main>\n<footer>{footer}</footer></body></html>\n"
        )
    }
}

impl Part {
    fn html(&self) -> String {
        let Part { id, title, body } = self;
        format!(
            "<section id=\"{id}\" aria-labelledby=\"{id}-h\"><h2 id=\"{id}-h\">{title}</h2>{body}</section>\n"
        )
    }
}
