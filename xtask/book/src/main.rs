//! Builds the site of docs/ as HTML files that need no network: `book DOCS SITE REPOSITORY`.

mod links;

use mdbook_driver::MDBook;
use mdbook_driver::book::Book;
use mdbook_driver::errors::Result;
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use std::path::Path;
use std::process::ExitCode;

/// Redirects links. All pages are in one folder, so a link that leaves it leads to the repository.
struct Outside(String);

impl Preprocessor for Outside {
    fn name(&self) -> &str {
        "outside"
    }

    fn run(&self, _: &PreprocessorContext, mut book: Book) -> Result<Book> {
        book.for_each_chapter_mut(|chapter| {
            for mark in ["](", "href=\""] {
                chapter.content =
                    chapter.content.replace(&format!("{mark}../"), &format!("{mark}{}/", self.0));
            }
        });
        Ok(book)
    }
}

fn build(docs: &str, site: &str, repository: &str) -> Result<String> {
    let mut book = MDBook::load(docs)?;
    book.config.build.build_dir = site.into();
    book.with_preprocessor(Outside(format!("{repository}/blob/main")));
    book.build()?;
    let pages = links::check(Path::new(site))?;
    Ok(format!("{pages} pages"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [docs, site, repository] = arguments.as_slice() else {
        eprintln!("book DOCS SITE REPOSITORY");
        return ExitCode::from(2);
    };
    match build(docs, site, repository) {
        Ok(pages) => {
            println!("{pages}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why:#}");
            ExitCode::FAILURE
        }
    }
}
