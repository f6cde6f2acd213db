"""Small files in the shapes of published ones: names, order and kinds of columns are theirs, every text is ours."""

# ruff: noqa: E501 - a table, one file a line

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Make = Callable[[int, random.Random], object]

SUBJECTS = (
    "the delivery",
    "our new phone",
    "this film",
    "the second half",
    "my bank card",
    "their support team",
    "the hotel room",
    "a small company from Leeds",
    "the latest update",
    "the man with the dog",
    "the waiter",
    "the invoice from March",
    "everyone in the office",
    "the battery",
    "the main actor",
    "the city council",
    "an old friend of mine",
)
VERBS = (
    "never arrived",
    "was far better than I had hoped",
    "broke after two days",
    "made us laugh out loud",
    "cost too much",
    "changed its mind again",
    "will be missed",
    "did not answer any of my questions",
    "looks exactly like the picture",
    "has announced a loss for the year",
    "saved the whole evening",
    "keeps asking for a password",
    "felt cheap and cold",
)
ENDS = (
    "",
    "",
    "",
    " and I would do it again",
    ", which nobody expected",
    " because of the rain",
    " before the meeting",
    ", sadly",
)
ADJECTIVES = (
    "Great",
    "Poor",
    "Loved it",
    "Not for me",
    "Just okay",
    "Five stars",
    "Broken",
    "Would buy again",
    "So so",
    "Wow",
)
NAMES = ("ann", "bob77", "carla_k", "d_miller", "eve", "fritz", "gus", "hana", "ivo", "jo")
TOPICS = ("refund", "login", "delivery", "card", "price")


def one_sentence(row: int, rng: random.Random) -> str:
    return f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)}{rng.choice(ENDS)}".capitalize() + "."


def prose(fewest: int, most: int) -> Make:
    return lambda row, rng: " ".join(one_sentence(row, rng) for _ in range(rng.randint(fewest, most)))


def question(row: int, rng: random.Random) -> str:
    return f"Why do you think {rng.choice(SUBJECTS)} {rng.choice(VERBS)}?"


def title(row: int, rng: random.Random) -> str:
    return rng.choice(ADJECTIVES) if rng.random() < 0.3 else f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)}".title()


def summary(row: int, rng: random.Random) -> str:
    return f"{rng.choice(ADJECTIVES)} {rng.choice(('phone', 'film', 'book', 'coffee', 'tea', 'dress'))}"


def parse(row: int, rng: random.Random) -> str:
    words = one_sentence(row, rng).rstrip(".").split()
    return "( " * (len(words) - 1) + words[0] + " " + " ".join(f"{word} )" for word in words[1:])


def tree(row: int, rng: random.Random) -> str:
    words = one_sentence(row, rng).rstrip(".").split()
    return "(ROOT (S " + " ".join(f"(NP (NN {word}))" for word in words) + "))"


def one_of(*values: object) -> Make:
    return lambda row, rng: rng.choice(values)


def rarely(make: Make, share: float) -> Make:
    """Mostly empty cells."""
    return lambda row, rng: make(row, rng) if rng.random() < share else ""


def whole(low: int, high: int) -> Make:
    return lambda row, rng: rng.randint(low, high)


def decimal(low: float, high: float, digits: int = 3) -> Make:
    return lambda row, rng: f"{rng.uniform(low, high):.{digits}f}"


def flag(share: float = 0.2) -> Make:
    return lambda row, rng: int(rng.random() < share)


def by_row(make: Callable[[int], object]) -> Make:
    return lambda row, rng: make(row)


def empty(row: int, rng: random.Random) -> str:
    return ""


def code(row: int, rng: random.Random) -> str:
    return f"{rng.getrandbits(80):020x}"


def name(row: int, rng: random.Random) -> str:
    return f"{rng.choice(NAMES)}{rng.randint(1, 400)}"


def day(row: int, rng: random.Random) -> str:
    return f"2017-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def web(row: int, rng: random.Random) -> str:
    return f"https://news.example.org/{rng.choice(TOPICS)}/{rng.randint(1000, 99999)}"


def place(row: int, rng: random.Random) -> str:
    return rng.choice(
        ("London", "USA", "New York, NY", "Kenya", "somewhere", "Toronto", "Leeds, UK", "Earth", "Paris", "Oslo")
    )


def list_of(items: Sequence[object], fewest: int, most: int) -> Make:
    """A list as Python writes it, in one cell."""
    return lambda row, rng: str(rng.sample(items, rng.randint(fewest, most)))


number = by_row(lambda row: row)
judged_at = by_row(lambda row: f"10/{row % 9 + 20}/15 {row % 9 + 10}:24")


@dataclass(frozen=True)
class Published:
    """A file, and every answer that is right for it; `labels` is empty where only a doubt is right."""

    name: str
    columns: Sequence[tuple[str, Make]]
    text: Sequence[str | tuple[str, ...]]
    labels: Sequence[str | tuple[str, ...]]
    format: str = "csv"
    header: bool = True
    rows: int = 120
    sorted_by: str = ""
    label_separator: str = ""

    @property
    def suffix(self) -> str:
        return {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "semicolons": "txt"}[self.format]

    @property
    def content(self) -> str:
        """The whole file."""
        rng = random.Random(self.name)
        names = [column for column, _ in self.columns]
        rows = [[make(row, rng) for _, make in self.columns] for row in range(self.rows)]
        if self.sorted_by:
            key = names.index(self.sorted_by)
            rows.sort(key=lambda row: str(row[key]))
        if self.format == "jsonl":
            return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        out = io.StringIO()
        delimiter = {"tsv": "\t", "semicolons": ";"}.get(self.format, ",")
        writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        writer.writerows(([names] if self.header else []) + rows)
        return out.getvalue()


def numbered(*makes: Make) -> list[tuple[str, Make]]:
    """The columns of a file without a header."""
    return [(f"column_{position}", make) for position, make in enumerate(makes, start=1)]


nli = one_of("entailment", "neutral", "contradiction")
yes_no = flag(0.5)
EMOTIONS = (
    "admiration",
    "amusement",
    "anger",
    "annoyance",
    "approval",
    "caring",
    "confusion",
    "curiosity",
    "desire",
    "fear",
    "joy",
    "neutral",
)
TOXIC = ("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")
FIELDS = ("Computer Science", "Physics", "Mathematics", "Statistics", "Quantitative Biology", "Quantitative Finance")
PRODUCTS = ("Debt collection", "Mortgage", "Student loan", "Credit card", "Checking or savings account")
GENRES = ("Drama", "Comedy", "Crime", "Horror", "Romance")
TWEET_EMOTIONS = ("anger", "anticipation", "disgust", "fear", "joy", "love", "optimism", "pessimism", "trust")
CROWD: tuple[tuple[str, Make], ...] = (
    ("_unit_id", by_row(lambda row: 815719226 + row)),
    ("_golden", one_of("FALSE", "FALSE", "TRUE")),
    ("_unit_state", one_of("finalized", "finalized", "golden")),
    ("_trusted_judgments", one_of(3, 3, 4)),
    ("_last_judgment_at", judged_at),
)
"""What CrowdFlower puts before the columns of a file."""
confidence = one_of("1", "0.6625", "0.8129")
PAIR12 = ("sentence1", "sentence2")

PUBLISHED = (
    Published("cola", numbered(one_of("gj04", "ad03", "bc01"), yes_no, rarely(one_of("*"), 0.3), one_sentence), ["column_4"], ["column_2"], "tsv", header=False),
    Published("sst2", [("sentence", prose(1, 1)), ("label", yes_no)], ["sentence"], ["label"], "tsv"),
    Published("qqp", [("id", number), ("qid1", by_row(lambda r: 2 * r + 1)), ("qid2", by_row(lambda r: 2 * r + 2)), ("question1", question), ("question2", question), ("is_duplicate", yes_no)], [("question1", "question2")], ["is_duplicate"]),
    Published("mrpc", [("Quality", yes_no), ("#1 ID", whole(100000, 3000000)), ("#2 ID", whole(100000, 3000000)), ("#1 String", prose(1, 2)), ("#2 String", prose(1, 2))], [("#1 String", "#2 String")], ["Quality"], "tsv"),
    Published("stsb", [("index", number), ("genre", one_of("main-captions", "main-news", "main-forums")), ("filename", one_of("MSRvid", "headlines", "images")), ("year", one_of("2012test", "2013", "2015")), ("old_index", whole(0, 3000)), ("source1", one_of("none")), ("source2", one_of("none")), ("sentence1", one_sentence), ("sentence2", one_sentence), ("score", decimal(0, 5))], [PAIR12], [], "tsv"),
    Published("qnli", [("index", number), ("question", question), ("sentence", prose(1, 2)), ("label", one_of("entailment", "not_entailment"))], [("question", "sentence")], ["label"], "tsv"),
    Published("rte", [("index", number), ("sentence1", prose(2, 4)), ("sentence2", one_sentence), ("label", one_of("entailment", "not_entailment"))], [PAIR12], ["label"], "tsv"),
    Published("wnli", [("index", number), ("sentence1", prose(1, 1)), ("sentence2", one_sentence), ("label", yes_no)], [PAIR12], ["label"], "tsv"),
    Published("mnli", [("index", number), ("promptID", whole(1, 99999)), ("pairID", by_row(lambda r: f"{r * 7919}{'nec'[r % 3]}")), ("genre", one_of("fiction", "telephone", "travel", "slate", "government")), ("sentence1_binary_parse", parse), ("sentence2_binary_parse", parse), ("sentence1_parse", tree), ("sentence2_parse", tree), ("sentence1", prose(1, 2)), ("sentence2", one_sentence), ("label1", nli), ("gold_label", nli)], [PAIR12], ["gold_label"], "tsv"),
    Published("snli", [("gold_label", nli), ("sentence1_binary_parse", parse), ("sentence2_binary_parse", parse), ("sentence1_parse", tree), ("sentence2_parse", tree), ("sentence1", one_sentence), ("sentence2", one_sentence), ("captionID", by_row(lambda r: f"{4705552913 + r // 3}.jpg#{r % 5}")), ("pairID", by_row(lambda r: f"{4705552913 + r // 3}.jpg#{r % 5}r1{'nec'[r % 3]}")), ("label1", nli), *((f"label{i}", rarely(nli, 0.1)) for i in range(2, 6))], [PAIR12], ["gold_label"], "tsv"),
    Published("snli_jsonl", [("annotator_labels", lambda r, g: [nli(r, g)]), ("captionID", by_row(lambda r: f"{3416050480 + r // 3}.jpg#4")), ("gold_label", nli), ("pairID", by_row(lambda r: f"{3416050480 + r}.jpg#4r1n")), ("sentence1", one_sentence), ("sentence1_binary_parse", parse), ("sentence1_parse", tree), ("sentence2", one_sentence), ("sentence2_binary_parse", parse), ("sentence2_parse", tree)], [PAIR12], ["gold_label"], "jsonl"),
    Published("imdb", [("review", prose(4, 12)), ("sentiment", one_of("positive", "negative"))], ["review"], ["sentiment"]),
    Published("sentiment140", numbered(one_of("0", "4"), by_row(lambda r: 1467810369 + 311 * r), by_row(lambda r: f"Mon Apr 06 22:{r % 60:02}:45 PDT 2009"), one_of("NO_QUERY"), name, prose(1, 2)), ["column_6"], ["column_1"], header=False, sorted_by="column_1"),
    Published("amazon_polarity", numbered(whole(1, 2), title, prose(3, 7)), ["column_3", ("column_2", "column_3")], ["column_1"], header=False),
    Published("yelp_polarity", numbered(whole(1, 2), prose(3, 9)), ["column_2"], ["column_1"], header=False),
    Published("ag_news", [("Class Index", whole(1, 4)), ("Title", title), ("Description", prose(2, 4))], ["Description", ("Title", "Description")], ["Class Index"]),
    Published("ag_news_raw", numbered(whole(1, 4), title, prose(2, 4)), ["column_3", ("column_2", "column_3")], ["column_1"], header=False),
    Published("dbpedia", [("label", whole(0, 13)), ("title", summary), ("content", prose(2, 5))], ["content", ("title", "content")], ["label"], rows=200),
    Published("dbpedia_classes", [("text", prose(3, 6)), ("l1", one_of("Agent", "Place", "Work")), ("l2", one_of(*"ABCDEFGHI")), ("l3", one_of(*(f"Kind{i}" for i in range(25))))], ["text"], ["l1", "l2", "l3"], rows=200),
    Published("trec", [("label-coarse", whole(0, 5)), ("label-fine", whole(0, 46)), ("text", question)], ["text"], ["label-coarse"], rows=300),
    Published("newsgroups", [("", number), ("content", prose(5, 20)), ("target", by_row(lambda r: r * 7 % 20)), ("target_names", by_row(lambda r: f"rec.topic{r * 7 % 20}"))], ["content"], ["target_names", "target"], rows=200),
    Published("sms_spam", [("v1", one_of("ham", "ham", "ham", "spam")), ("v2", prose(1, 3)), ("", rarely(one_sentence, 0.01)), ("", empty), ("", empty)], ["v2"], ["v1"]),
    Published("toxic", [("id", code), ("comment_text", prose(1, 8)), *((column, flag(0.1)) for column in TOXIC)], ["comment_text"], [TOXIC]),
    Published("disaster", [("id", number), ("keyword", rarely(one_of("ablaze", "flood", "wreck", "fire%20storm", "quake"), 0.9)), ("location", rarely(place, 0.6)), ("text", prose(1, 2)), ("target", yes_no)], ["text"], ["target"]),
    Published("airline", [("tweet_id", by_row(lambda r: 570306133677760513 + r * 17)), ("airline_sentiment", one_of("negative", "neutral", "positive")), ("airline_sentiment_confidence", decimal(0.3, 1, 4)), ("negativereason", rarely(one_of("Late Flight", "Bad Flight", "Lost Luggage", "Can't Tell"), 0.6)), ("negativereason_confidence", rarely(decimal(0.3, 1, 4), 0.7)), ("airline", one_of("United", "Delta", "Southwest")), ("airline_sentiment_gold", rarely(one_of("negative", "positive"), 0.02)), ("name", name), ("negativereason_gold", empty), ("retweet_count", one_of(0, 0, 0, 1, 2)), ("text", prose(1, 2)), ("tweet_coord", empty), ("tweet_created", by_row(lambda r: f"2015-02-24 11:{r % 60:02}:52 -0800")), ("tweet_location", rarely(place, 0.7)), ("user_timezone", rarely(one_of("Eastern Time (US & Canada)", "Pacific Time (US & Canada)"), 0.7))], ["text"], ["airline_sentiment"], rows=300),
    Published("clothing", [("", number), ("Clothing ID", whole(700, 1200)), ("Age", whole(18, 80)), ("Title", rarely(title, 0.8)), ("Review Text", prose(2, 7)), ("Rating", whole(1, 5)), ("Recommended IND", flag(0.8)), ("Positive Feedback Count", whole(0, 12)), ("Division Name", one_of("General", "General Petite", "Initmates")), ("Department Name", one_of("Tops", "Dresses", "Bottoms")), ("Class Name", one_of("Knits", "Blouses", "Pants", "Dresses"))], ["Review Text"], ["Rating", "Recommended IND"], rows=300),
    Published("insincere", [("qid", code), ("question_text", question), ("target", flag(0.06))], ["question_text"], ["target"], rows=200),
    Published("rotten_tomatoes", [("PhraseId", number), ("SentenceId", by_row(lambda r: r // 6 + 1)), ("Phrase", lambda r, g: " ".join(one_sentence(r, g).split()[: g.randint(1, 9)])), ("Sentiment", whole(0, 4))], ["Phrase"], ["Sentiment"], "tsv"),
    Published("banking77", [("text", question), ("category", one_of(*(f"{a}_{b}" for a in TOPICS for b in ("status", "change", "failed"))))], ["text"], ["category"], rows=200, sorted_by="category"),
    Published("clinc", [("text", question), ("intent", one_of(*(f"{a}_{b}" for a in TOPICS for b in ("status", "change", "failed")))), ("domain", one_of("banking", "travel", "home"))], ["text"], ["intent"], rows=200),
    Published("atis", numbered(one_of("atis_flight", "atis_flight", "atis_airfare", "atis_ground_service"), prose(1, 1)), ["column_2"], ["column_1"], header=False),
    Published("goemotions_raw", [("text", prose(1, 2)), ("id", code), ("author", name), ("subreddit", one_of("nba", "aww", "politics", "teenagers")), ("link_id", code), ("parent_id", code), ("created_utc", whole(1546300800, 1548979200)), ("rater_id", whole(0, 81)), ("example_very_unclear", one_of("FALSE", "FALSE", "TRUE")), *((column, flag(0.1)) for column in EMOTIONS)], ["text"], [EMOTIONS]),
    Published("goemotions_tsv", numbered(prose(1, 2), lambda r, g: ",".join(map(str, sorted(g.sample(range(28), g.choice((1, 1, 1, 2)))))), code), ["column_1"], ["column_2"], "tsv", header=False, rows=400, label_separator=","),
    Published("happydb", [("hmid", number), ("wid", whole(1, 12000)), ("reflection_period", one_of("24h", "3m")), ("original_hm", by_row(lambda r: one_sentence(r, random.Random(r)) + " " * (r % 5 == 0))), ("cleaned_hm", by_row(lambda r: one_sentence(r, random.Random(r)))), ("modified", one_of("TRUE", "TRUE", "FALSE")), ("num_sentence", whole(1, 4)), ("ground_truth_category", rarely(one_of("bonding", "leisure", "affection"), 0.14)), ("predicted_category", one_of("bonding", "leisure", "affection", "nature"))], ["cleaned_hm", "original_hm"], ["predicted_category"], rows=300),
    Published("phrasebank_kaggle", numbered(one_of("neutral", "positive", "negative"), prose(1, 3)), ["column_2"], ["column_1"], header=False),
    Published("davidson", [("", number), ("count", one_of(3, 3, 3, 6)), ("hate_speech", whole(0, 3)), ("offensive_language", whole(0, 3)), ("neither", whole(0, 3)), ("class", whole(0, 2)), ("tweet", prose(1, 2))], ["tweet"], ["class"]),
    Published("fake_news", [("title", title), ("text", prose(8, 20)), ("subject", one_of("politicsNews", "worldnews")), ("date", one_of("December 31, 2017 ", "March 2, 2016 "))], ["text", ("title", "text")], ["subject"], sorted_by="subject"),
    Published("welfake", [("", number), ("title", title), ("text", prose(8, 20)), ("label", yes_no)], ["text", ("title", "text")], ["label"]),
    Published("complaints", [("Date received", by_row(lambda r: f"{r % 12 + 1:02}/{r % 28 + 1:02}/2019")), ("Product", one_of(*PRODUCTS)), ("Sub-product", rarely(one_of("Medical debt", "FHA mortgage", "I do not know"), 0.8)), ("Issue", one_of("Loan servicing, payments", "Attempts to collect debt not owed", "Fees", "Closing an account")), ("Sub-issue", rarely(one_of("Debt is not mine", "Debt was paid", "Account status"), 0.6)), ("Consumer complaint narrative", rarely(prose(4, 12), 0.5)), ("Company public response", rarely(one_of("Company has responded to the consumer and the CFPB and chooses not to provide a public response"), 0.4)), ("Company", one_of("Big Bank", "Other Bank", "Loans Inc.", "Cards Ltd.")), ("State", one_of("CA", "TX", "NY", "FL")), ("ZIP code", whole(10000, 99999)), ("Tags", rarely(one_of("Older American", "Servicemember"), 0.13)), ("Submitted via", one_of("Web", "Web", "Phone")), ("Company response to consumer", one_of("Closed with explanation", "Closed", "In progress")), ("Timely response?", one_of("Yes", "Yes", "No")), ("Consumer disputed?", one_of("Yes", "No", "N/A")), ("Complaint ID", by_row(lambda r: 3000000 + r * 13))], ["Consumer complaint narrative"], ["Product"], rows=400),
    Published("squad", [("id", code), ("title", by_row(lambda r: ("Normans", "Oxygen", "Warsaw", "Kenya")[r // 30])), ("context", by_row(lambda r: prose(5, 6)(r, random.Random(r // 5)))), ("question", question), ("answer_start", whole(0, 700)), ("answer_text", lambda r, g: " ".join(one_sentence(r, g).split()[: g.randint(1, 4)]))], [("question", "context")], []),
    Published("boolq", [("question", question), ("title", title), ("answer", lambda r, g: g.random() < 0.6), ("passage", prose(4, 8))], [("question", "passage")], ["answer"], "jsonl"),
    Published("paws", [("id", number), ("sentence1", prose(1, 2)), ("sentence2", prose(1, 2)), ("label", yes_no)], [PAIR12], ["label"], "tsv"),
    Published("yelp_jsonl", [("review_id", code), ("user_id", code), ("business_id", code), ("stars", one_of(1.0, 2.0, 3.0, 4.0, 5.0)), ("useful", whole(0, 4)), ("funny", whole(0, 3)), ("cool", whole(0, 3)), ("text", prose(2, 9)), ("date", by_row(lambda r: f"2018-07-07 22:{r % 60:02}:00"))], ["text"], ["stars"], "jsonl"),
    Published("stackoverflow", [("Id", by_row(lambda r: 34552656 + r * 31)), ("Title", question), ("Body", lambda r, g: f"<p>{prose(3, 9)(r, g)}</p>"), ("Tags", lambda r, g: "".join(f"<{tag}>" for tag in g.sample(("python", "java", "c#", "sql", "html", "css", "php", "git"), g.randint(1, 3)))), ("CreationDate", by_row(lambda r: f"2016-01-01 00:{r % 60:02}:30")), ("Y", one_of("HQ", "LQ_EDIT", "LQ_CLOSE"))], ["Body", ("Title", "Body")], ["Y"], rows=300),
    Published("fine_food", [("Id", number), ("ProductId", one_of("B001E4KFG0", "B00813GRG4", "B000LQOCH0")), ("UserId", code), ("ProfileName", name), ("HelpfulnessNumerator", whole(0, 4)), ("HelpfulnessDenominator", whole(0, 6)), ("Score", whole(1, 5)), ("Time", whole(1300000000, 1350000000)), ("Summary", summary), ("Text", prose(2, 8))], ["Text", ("Summary", "Text")], ["Score"]),
    Published("sorted_reviews", [("text", prose(2, 4)), ("kind", one_of("negative", "positive"))], ["text"], ["kind"], rows=9000, sorted_by="kind"),
    Published("sorted_three_columns", [("doc", number), ("what", prose(2, 4)), ("outcome", one_of("accepted", "rejected")), ("source", one_of("paper"))], ["what"], ["outcome"], rows=9000, sorted_by="outcome"),
    Published("score_and_verdict", [("claim", prose(1, 2)), ("probability", decimal(0, 1, 1)), ("truth", one_of("true", "half", "false"))], ["claim"], ["truth"]),
    Published("rating_and_kind", [("comment", prose(1, 4)), ("score", one_of("1.5", "2.5", "3.5", "4.5")), ("department", one_of("sales", "support", "returns"))], ["comment"], []),
    Published("hans", [("gold_label", one_of("entailment", "non-entailment")), ("sentence1_binary_parse", parse), ("sentence2_binary_parse", parse), ("sentence1_parse", tree), ("sentence2_parse", tree), ("sentence1", one_sentence), ("sentence2", one_sentence), ("pairID", by_row(lambda r: f"ex{r}")), ("heuristic", one_of("lexical_overlap", "subsequence", "constituent")), ("subcase", one_of("ln_subject/object_swap", "ln_preposition", "sn_NP/S")), ("template", one_of("temp1", "temp2", "temp18"))], [PAIR12], ["gold_label"], "tsv"),
    Published("bias_templates", [("sentence", prose(1, 1)), ("template", one_of("the {subject} {verb} because of the weather, and nobody in the room expected it", "whenever {subject} {verb}, all of the people at the table begin to talk")), ("emotion", one_of("anger", "joy", "fear", "sadness"))], ["sentence"], ["emotion"]),
    Published("two_columns_numbers", [("was", prose(1, 2)), ("n", whole(0, 3))], ["was"], ["n"]),
    Published("two_columns_german", [("Beschwerde", prose(1, 3)), ("Abteilung", one_of("Versand", "Kasse", "Technik"))], ["Beschwerde"], ["Abteilung"]),
    Published("two_columns_headless", numbered(prose(1, 2), whole(0, 1)), ["column_1"], ["column_2"], header=False),
    Published("header_is_a_value", [("message", prose(1, 2)), ("spam", one_of("spam", "ham", "ham"))], ["message"], ["spam"]),
    Published("header_is_a_text", [("text", lambda r, g: "text" if r == 7 else one_sentence(r, g)), ("label", one_of("word", "label", "name"))], ["text"], ["label"]),
    Published("news_category", [("category", one_of("POLITICS", "WELLNESS", "TRAVEL", "COMEDY")), ("headline", title), ("authors", name), ("link", web), ("short_description", prose(1, 2)), ("date", day)], ["short_description", "headline", ("headline", "short_description")], ["category"], "jsonl"),
    Published("clickbait", [("headline", title), ("clickbait", yes_no)], ["headline"], ["clickbait"]),
    Published("liar", numbered(by_row(lambda r: f"{2635 + r}.json"), one_of("false", "half-true", "mostly-true", "true", "barely-true", "pants-fire"), one_sentence, one_of("abortion", "taxes", "health-care,economy", "jobs"), name, rarely(one_of("Senator", "Governor", "State representative"), 0.7), one_of("Texas", "Virginia", "Florida"), one_of("republican", "democrat", "none"), whole(0, 20), whole(0, 20), whole(0, 20), whole(0, 20), whole(0, 20), one_of("a mailer", "a floor speech", "an interview on the radio")), ["column_3"], ["column_2"], "tsv", header=False),
    Published("sick", [("pair_ID", number), ("sentence_A", one_sentence), ("sentence_B", one_sentence), ("relatedness_score", decimal(1, 5, 1)), ("entailment_judgment", one_of("NEUTRAL", "ENTAILMENT", "CONTRADICTION"))], [("sentence_A", "sentence_B")], ["entailment_judgment"], "tsv"),
    Published("emotions_txt", [("text", lambda r, g: one_sentence(r, g).lower().rstrip(".").replace(",", "")), ("label", one_of("sadness", "joy", "anger"))], ["text", "column_1"], ["label", "column_2"], "semicolons", header=False),
    Published("sarcasm", [("article_link", web), ("headline", title), ("is_sarcastic", flag(0.4))], ["headline"], ["is_sarcastic"], "jsonl"),
    Published("twitter_entities", numbered(whole(1, 13000), one_of("Borderlands", "Amazon", "Verizon"), one_of("Positive", "Negative", "Neutral", "Irrelevant"), prose(1, 3)), ["column_4"], ["column_3"], header=False),
    Published("tweets_id_label", [("id", number), ("label", flag(0.1)), ("tweet", prose(1, 2))], ["tweet"], ["label"]),
    Published("spam_mail", [("", number), ("label", by_row(lambda r: ("ham", "ham", "spam")[r % 3])), ("text", lambda r, g: f"Subject: {title(r, g)}\n{prose(2, 6)(r, g)}"), ("label_num", by_row(lambda r: int(r % 3 == 2)))], ["text"], ["label", "label_num"]),
    Published("bbc", [("category", one_of("business", "tech", "sport")), ("filename", by_row(lambda r: f"{r:03}.txt")), ("title", title), ("content", prose(6, 15))], ["content", ("title", "content")], ["category"], "tsv", sorted_by="category"),
    Published("metadata_only", [("file_id", code), ("user_id", whole(1, 900)), ("subforum_id", whole(1000, 1400)), ("num_contexts", whole(0, 3)), ("label", one_of("noHate", "hate"))], [], []),
    Published("corona", [("UserName", by_row(lambda r: 3799 + r)), ("ScreenName", by_row(lambda r: 48751 + r)), ("Location", rarely(place, 0.8)), ("TweetAt", by_row(lambda r: f"{r % 28 + 1:02}-03-2020")), ("OriginalTweet", prose(1, 3)), ("Sentiment", one_of("Neutral", "Positive", "Extremely Negative"))], ["OriginalTweet"], ["Sentiment"]),
    Published("disneyland", [("Review_ID", by_row(lambda r: 670772142 - r)), ("Rating", whole(1, 5)), ("Year_Month", one_of("2019-4", "2019-3", "missing")), ("Reviewer_Location", one_of("Australia", "Philippines", "United Kingdom")), ("Review_Text", prose(2, 8)), ("Branch", one_of("Disneyland_HongKong", "Disneyland_Paris"))], ["Review_Text"], ["Rating"]),
    Published("movie_genres", [("movie_id", number), ("name", title), ("plot", prose(4, 9)), ("genres", lambda r, g: "|".join(g.sample(("Drama", "Comedy", "Crime", "Horror", "Romance"), g.randint(1, 3))))], ["plot"], ["genres"], rows=300, label_separator="|"),
    Published("research_articles", [("ID", number), ("TITLE", title), ("ABSTRACT", prose(5, 12)), *((column, flag(0.3)) for column in FIELDS)], ["ABSTRACT", ("TITLE", "ABSTRACT")], [FIELDS]),
    Published("patent_phrases", [("id", code), ("anchor", by_row(lambda r: ("abatement", "wood article", "acid gas")[r // 40])), ("target", lambda r, g: " ".join(one_sentence(r, g).split()[1:4])), ("context", one_of("A47", "B01", "C02")), ("score", one_of("0.00", "0.25", "0.50", "0.75", "1.00"))], [("anchor", "target"), "target"], []),
    Published("essays", [("essay_id", code), ("full_text", prose(15, 30)), ("score", whole(1, 6))], ["full_text"], ["score"]),
    Published("readability", [("id", code), ("url_legal", rarely(web, 0.3)), ("license", rarely(one_of("CC BY 4.0", "CC BY-SA 3.0"), 0.3)), ("excerpt", prose(8, 12)), ("target", decimal(-3.6, 1.7, 8)), ("standard_error", decimal(0.3, 0.6, 8))], ["excerpt"], []),
    Published("tweet_extraction", [("textID", code), ("text", by_row(lambda r: one_sentence(r, random.Random(r)))), ("selected_text", by_row(lambda r: one_sentence(r, random.Random(r)).split(" ", 2)[2])), ("sentiment", one_of("neutral", "negative", "positive"))], ["text"], ["sentiment"]),
    Published("ecommerce", numbered(one_of("Household", "Books", "Electronics"), prose(3, 9)), ["column_2"], ["column_1"], header=False, sorted_by="column_1"),
    Published("language_id", [("Text", prose(1, 3)), ("language", one_of("English", "Estonian", "Thai", "Tamil"))], ["Text"], ["language"]),
    Published("resumes", [("ID", by_row(lambda r: 16852973 + r * 7)), ("Resume_str", prose(20, 40)), ("Resume_html", lambda r, g: f'<div class="fontsize">{prose(20, 40)(r, g)}</div>'), ("Category", one_of("HR", "DESIGNER", "TEACHER"))], ["Resume_str"], ["Category"], rows=60),
    Published("steam", [("app_id", one_of(10, 20, 30)), ("app_name", one_of("Counter-Strike", "Half-Life", "Portal")), ("review_text", prose(1, 5)), ("review_score", one_of(-1, 1)), ("review_votes", flag(0.2))], ["review_text"], ["review_score"]),
    Published("tickets", [("ticket_number", by_row(lambda r: f"INC{r:07}")), ("opened_at", by_row(lambda r: f"{r % 28 + 1}/2/2016 01:16")), ("short_description", title), ("description", prose(2, 5)), ("priority", one_of("1 - Critical", "2 - High", "3 - Moderate")), ("assignment_group", one_of("Group 70", "Group 24", "Group 10"))], ["description", "short_description"], ["assignment_group", "priority"]),
)  # fmt: skip
HELD_OUT = PUBLISHED[2::3]
"""Measured, and not learned from, while the rules were made."""
WRITTEN_LATER = (
    Published("amazon_jsonl", [("overall", one_of(1.0, 2.0, 3.0, 4.0, 5.0)), ("verified", lambda r, g: g.random() < 0.8), ("reviewTime", by_row(lambda r: f"{r % 12 + 1:02} {r % 28 + 1}, 2016")), ("reviewerID", code), ("asin", one_of("B0000A", "B0000B", "B0000C")), ("reviewerName", name), ("reviewText", prose(2, 8)), ("summary", summary), ("unixReviewTime", whole(1300000000, 1400000000))], ["reviewText"], ["overall"], "jsonl"),
    Published("civil_comments", [("id", number), ("target", decimal(0, 1, 6)), ("comment_text", prose(1, 5)), ("severe_toxicity", decimal(0, 1, 6)), ("obscene", decimal(0, 1, 6)), ("created_date", by_row(lambda r: f"2015-09-29 10:{r % 60:02}:41.987077+00")), ("publication_id", one_of(2, 6, 54)), ("article_id", whole(2000, 9000)), ("rating", one_of("approved", "rejected")), ("funny", whole(0, 3)), ("likes", whole(0, 9))], ["comment_text"], []),
    Published("wine", [("", number), ("country", one_of("Italy", "Portugal", "US")), ("description", prose(2, 3)), ("designation", rarely(name, 0.7)), ("points", whole(80, 100)), ("price", decimal(4, 90, 1)), ("province", one_of("Sicily", "Oregon", "Douro")), ("taster_name", one_of("Ann Lee", "Bob Ray")), ("title", title), ("variety", one_of("Pinot Noir", "Riesling", "White Blend")), ("winery", name)], ["description"], ["variety", "points"]),
    Published("netflix", [("show_id", by_row(lambda r: f"s{r}")), ("type", one_of("Movie", "TV Show")), ("title", title), ("director", rarely(name, 0.7)), ("cast", name), ("country", one_of("India", "United States")), ("date_added", by_row(lambda r: f"September {r % 28 + 1}, 2021")), ("release_year", whole(1990, 2021)), ("rating", one_of("TV-MA", "PG-13", "R")), ("duration", one_of("90 min", "1 Season", "2 Seasons")), ("listed_in", lambda r, g: ", ".join(g.sample(("Dramas", "Comedies", "Horror Movies", "TV Shows"), g.randint(1, 3)))), ("description", prose(1, 2))], ["description"], ["type", "listed_in", "rating"], rows=200),
    Published("app_reviews", [("reviewId", code), ("userName", name), ("userImage", web), ("content", prose(1, 3)), ("score", whole(1, 5)), ("thumbsUpCount", whole(0, 9)), ("reviewCreatedVersion", one_of("2.1.1", "2.1.2", "3.0")), ("at", by_row(lambda r: f"2020-10-27 21:{r % 60:02}:41")), ("replyContent", rarely(prose(1, 2), 0.4)), ("repliedAt", empty)], ["content"], ["score"]),
    Published("depression", [("clean_text", lambda r, g: one_sentence(r, g).lower().rstrip(".")), ("is_depression", yes_no)], ["clean_text"], ["is_depression"], sorted_by="is_depression"),
    Published("pubmed_rct", [("abstract_id", by_row(lambda r: 24290286 + r // 10)), ("line_id", by_row(lambda r: f"24290286_{r}_{r % 10}")), ("abstract_text", prose(1, 2)), ("line_number", by_row(lambda r: r % 10)), ("total_lines", one_of(10, 11, 12)), ("target", one_of("METHODS", "RESULTS", "BACKGROUND"))], ["abstract_text"], ["target"]),
    Published("medical_transcriptions", [("", number), ("description", prose(1, 1)), ("medical_specialty", one_of(" Surgery", " Radiology", " Urology")), ("sample_name", title), ("transcription", prose(10, 20)), ("keywords", lambda r, g: ", ".join(g.sample(("heart", "lung", "knee", "x-ray", "biopsy"), 3)))], ["transcription", "description"], ["medical_specialty"]),
    Published("symptoms", [("", number), ("label", one_of("Psoriasis", "Malaria", "Acne")), ("text", prose(1, 2))], ["text"], ["label"]),
    Published("bitext", [("flags", one_of("B", "BQZ", "BLQZ", "BCIP")), ("instruction", question), ("category", one_of("ORDER", "REFUND")), ("intent", one_of("cancel_order", "track_order", "get_refund")), ("response", prose(3, 6))], ["instruction"], ["intent", "category"]),
    Published("mental_health", [("", number), ("statement", prose(1, 4)), ("status", one_of("Anxiety", "Normal", "Stress"))], ["statement"], ["status"]),
    Published("spam_capitals", [("Category", one_of("ham", "ham", "spam")), ("Message", prose(1, 2))], ["Message"], ["Category"]),
    Published("phishing", [("", number), ("Email Text", prose(2, 9)), ("Email Type", one_of("Safe Email", "Phishing Email"))], ["Email Text"], ["Email Type"]),
    Published("cyberbullying", [("tweet_text", prose(1, 2)), ("cyberbullying_type", one_of("gender", "religion", "age"))], ["tweet_text"], ["cyberbullying_type"]),
    Published("fake_jobs", [("job_id", number), ("title", title), ("location", place), ("department", rarely(one_of("Sales", "IT"), 0.4)), ("salary_range", rarely(one_of("20000-28000"), 0.2)), ("company_profile", rarely(prose(2, 3), 0.8)), ("description", prose(5, 9)), ("requirements", rarely(prose(2, 4), 0.8)), ("benefits", rarely(prose(1, 2), 0.6)), ("telecommuting", flag(0.1)), ("has_company_logo", flag(0.8)), ("has_questions", flag(0.5)), ("employment_type", rarely(one_of("Full-time", "Part-time"), 0.8)), ("industry", rarely(one_of("Internet", "Retail"), 0.7)), ("fraudulent", flag(0.1))], ["description"], ["fraudulent"]),
    Published("anli", [("uid", code), ("context", prose(3, 5)), ("hypothesis", one_sentence), ("label", one_of("e", "n", "c")), ("model_label", one_of("e", "n", "c")), ("reason", rarely(one_sentence, 0.9))], [("context", "hypothesis")], ["label"], "jsonl"),
    Published("scitail", numbered(prose(1, 2), one_sentence, one_of("entails", "neutral")), [("column_1", "column_2")], ["column_3"], "tsv", header=False),
    Published("fever", [("id", number), ("verifiable", one_of("VERIFIABLE", "NOT VERIFIABLE")), ("label", one_of("SUPPORTS", "REFUTES")), ("claim", one_sentence), ("evidence", lambda r, g: [[[r, r + 1, "Page_of_it", 0]]])], ["claim"], ["label"], "jsonl"),
    Published("wic", [("word", one_of("place", "wave", "hit")), ("idx", number), ("sentence1", one_sentence), ("sentence2", one_sentence), ("start1", whole(0, 9)), ("start2", whole(0, 9)), ("label", lambda r, g: g.random() < 0.5)], [PAIR12], ["label"], "jsonl"),
    Published("esnli", [("pairID", by_row(lambda r: f"3416050480.jpg#{r}r1n")), ("gold_label", nli), ("Sentence1", one_sentence), ("Sentence2", one_sentence), ("Explanation_1", one_sentence), ("WorkerId", one_of("AF0", "AF1")), ("Sentence1_marked_1", lambda r, g: one_sentence(r, g).replace(" ", " *", 1))], [("Sentence1", "Sentence2")], ["gold_label"]),
    Published("persuade", [("discourse_id", code), ("essay_id", code), ("discourse_text", prose(1, 4)), ("discourse_type", one_of("Lead", "Position", "Claim")), ("discourse_effectiveness", one_of("Adequate", "Effective", "Ineffective"))], ["discourse_text"], ["discourse_effectiveness", "discourse_type"]),
    Published("hotels", [("id", code), ("dateAdded", by_row(lambda r: f"2017-01-0{r % 9 + 1}T00:00:00Z")), ("categories", one_of("Hotels", "Hotels,Motels")), ("city", one_of("Boston", "Austin")), ("name", one_of("The Grand", "Sea View")), ("reviews.date", by_row(lambda r: f"2016-10-0{r % 9 + 1}T00:00:00Z")), ("reviews.rating", whole(1, 5)), ("reviews.text", prose(2, 6)), ("reviews.title", summary), ("reviews.username", name)], ["reviews.text"], ["reviews.rating"]),
    Published("emotion_kaggle", [("", number), ("text", prose(1, 2)), ("label", whole(0, 5))], ["text"], ["label"]),
    Published("twitter_training", [("ItemID", number), ("Sentiment", yes_no), ("SentimentSource", one_of("Sentiment140", "Kaggle")), ("SentimentText", prose(1, 2))], ["SentimentText"], ["Sentiment"]),
    Published("bbc_semicolons", [("filename", by_row(lambda r: f"{r:03}.txt")), ("body", prose(4, 9)), ("kind", one_of("tech", "sport"))], ["body"], ["kind"], "semicolons"),
    Published("goodreads", [("user_id", code), ("book_id", whole(1, 90000)), ("review_id", code), ("rating", whole(0, 5)), ("review_text", prose(2, 9)), ("date_added", by_row(lambda r: f"Mon Mar {r % 28 + 1:02} 10:00:00 -0700 2016")), ("n_votes", whole(0, 9)), ("n_comments", whole(0, 9))], ["review_text"], ["rating"]),
    Published("ucberkeley", [("comment_id", number), ("annotator_id", whole(1, 900)), ("platform", one_of(0, 1, 2)), ("sentiment", one_of("0.0", "1.0", "2.0")), ("hate_speech_score", decimal(-4, 4, 2)), ("text", prose(1, 3)), ("target_race", one_of("True", "False")), ("target_religion", one_of("True", "False")), ("target_age", one_of("True", "False"))], ["text"], []),
    Published("spanish_reviews", [("review_id", code), ("product_id", code), ("stars", whole(1, 5)), ("review_body", prose(1, 4)), ("review_title", summary), ("language", one_of("es")), ("product_category", one_of("kitchen", "toys"))], ["review_body"], ["stars"], "jsonl"),
    Published("poems", [("poem name", title), ("content", prose(4, 9)), ("author", one_of("SHAKESPEARE", "DONNE")), ("type", one_of("Love", "Nature")), ("age", one_of("Renaissance", "Modern"))], ["content"], ["type", "age", "author"]),
    Published("toxic_short", [("comment", prose(1, 2)), ("insult", flag(0.3)), ("threat", flag(0.2))], ["comment"], [("insult", "threat")]),
    Published("crowd_gender", [("_unit_id", number), ("_last_judgment_at", judged_at), ("gender", one_of("male", "female", "brand")), ("gender:confidence", confidence), ("text", prose(1, 2))], ["text"], ["gender"]),
    Published("crowd_gender_whole", [*CROWD[:4], ("_last_judgment_at", one_of("10/26/15 23:24")), ("gender", one_of("male", "female", "brand")), ("gender:confidence", confidence), ("profile_yn", one_of("yes")), ("profile_yn:confidence", one_of(1)), ("created", by_row(lambda r: f"12/{r % 28 + 1}/13 1:48")), ("description", rarely(prose(1, 1), 0.8)), ("gender_gold", rarely(one_of("male"), 0.02)), ("name", name), ("profileimage", web), ("text", prose(1, 2)), ("tweet_location", rarely(place, 0.6))], ["text"], ["gender"]),
    Published("crowd_relevance", [("_unit_id", number), ("_golden", one_of("false")), ("relevance", one_of("yes", "no", "not sure")), ("relevance:confidence", confidence), ("_last_judgment_at", judged_at), ("text", prose(1, 2))], ["text"], ["relevance"]),
    Published("genres_python", [("overview", prose(2, 4)), ("genres", list_of(GENRES, 1, 3))], ["overview"], ["genres"], label_separator="list"),
    Published("genres_json", [("overview", prose(2, 4)), ("genres", lambda r, g: json.dumps(g.sample(GENRES, g.randint(1, 3))))], ["overview"], ["genres"], label_separator="list"),
    Published("genres_numpy", [("overview", prose(2, 4)), ("genres", lambda r, g: list_of(GENRES, 0, 3)(r, g).replace(",", ""))], ["overview"], ["genres"], label_separator="list"),
    Published("genres_and_votes", [("movie_id", number), ("title", summary), ("overview", prose(2, 4)), ("genres", list_of(GENRES, 1, 3)), ("vote_average", decimal(3, 9, 1)), ("release_date", day)], ["overview"], ["genres"], label_separator="list"),
    Published("tweets_of_parties", [("status_id", number), ("created_at", by_row(lambda r: f"2020-01-{r % 28 + 1:02}T10:00:00Z")), ("screen_name", code), ("text", prose(1, 2)), ("source", one_of("Twitter for iPhone", "Twitter Web App")), ("is_retweet", one_of("TRUE", "FALSE")), ("reply_count", whole(0, 3)), ("hashtags", rarely(one_of("a b", "c"), 0.5)), ("lang", one_of("en")), ("party", one_of("D", "R"))], ["text"], ["party"]),
    Published("flag_or_words", [("text", prose(1, 2)), ("department", one_of("sales", "support")), ("is_urgent", yes_no)], ["text"], ["department", "is_urgent"]),
    Published("half_stars", [("review", prose(1, 2)), ("stars", one_of("1", "2.5", "3.5", "4"))], ["review"], ["stars"]),
    Published("half_points", [("comment", prose(1, 2)), ("rate", one_of("1.0", "2.5", "3.5", "4.0"))], ["comment"], ["rate"]),
    Published("spaced_tags", [("Id", number), ("Body", prose(2, 4)), ("Tags", lambda r, g: " ".join(g.sample(("python", "java", "sql", "html", "css", "php", "git"), 3))), ("Y", one_of("HQ", "LQ_EDIT", "LQ_CLOSE"))], ["Body"], ["Y"]),
    Published("token_tags", [("id", number), ("sentence", prose(1, 1)), ("ner_tags", lambda r, g: str([g.choice(("O", "O", "O", "B-PER", "B-LOC")) for _ in range(8)]))], ["sentence"], []),
    Published("economic_news", [*CROWD, ("positivity", rarely(whole(1, 9), 0.2)), ("positivity:confidence", rarely(decimal(0.3, 1, 4), 0.2)), ("relevance", one_of("yes", "no", "not sure")), ("relevance:confidence", one_of("1", "0.64", "0.66")), ("articleid", code), ("date", by_row(lambda r: f"8/{r % 28 + 1}/91")), ("headline", title), ("positivity_gold", empty), ("relevance_gold", empty), ("text", prose(4, 9))], ["text"], ["relevance"]),
    Published("political_social_media", [*CROWD, ("audience", one_of("national", "constituency")), ("audience:confidence", one_of("1")), ("bias", one_of("partisan", "neutral")), ("bias:confidence", one_of("1")), ("message", one_of("policy", "attack", "support", "media")), ("message:confidence", one_of("1")), ("orig__golden", empty), ("audience_gold", empty), ("bias_gold", empty), ("bioid", code), ("id", number), ("label", lambda r, g: f"From: {g.choice(NAMES).title()} {g.choice(NAMES).title()} (Representative from {g.choice(('Ohio', 'Texas'))})"), ("source", one_of("twitter", "facebook")), ("text", prose(1, 2))], ["text"], ["audience", "bias", "message"]),
    Published("tmdb", [("budget", whole(0, 10**8)), ("genres", lambda r, g: json.dumps([{"id": GENRES.index(x) + 20, "name": x} for x in g.sample(GENRES, g.randint(1, 3))])), ("homepage", rarely(web, 0.6)), ("id", number), ("original_language", one_of("en", "en", "fr")), ("original_title", title), ("overview", prose(2, 4)), ("popularity", decimal(0, 90, 6)), ("release_date", day), ("runtime", whole(80, 150)), ("status", one_of("Released")), ("tagline", rarely(title, 0.8)), ("vote_average", decimal(3, 9, 1)), ("vote_count", whole(0, 9000))], ["overview"], []),
    Published("mpst", [("imdb_id", by_row(lambda r: f"tt{r:07}")), ("title", title), ("plot_synopsis", prose(8, 15)), ("tags", lambda r, g: ", ".join(g.sample(("cult", "horror", "gothic", "murder", "violence", "romantic"), g.randint(1, 4)))), ("split", one_of("train", "val", "test")), ("synopsis_source", one_of("imdb", "wikipedia"))], ["plot_synopsis"], ["tags"], label_separator=",", rows=300),
    Published("bitcoin_tweets", [("user_name", name), ("user_location", rarely(place, 0.6)), ("user_description", rarely(prose(1, 1), 0.8)), ("user_created", by_row(lambda r: f"2013-09-28 16:{r % 60:02}:01")), ("user_followers", whole(0, 9000)), ("user_verified", one_of("False", "False", "True")), ("date", by_row(lambda r: f"2021-02-05 10:{r % 60:02}:04")), ("text", prose(1, 2)), ("hashtags", rarely(lambda r, g: str(g.sample(["bitcoin", "btc", "eth", "crypto"], g.randint(1, 3))), 0.8)), ("source", one_of("Twitter Web App", "Twitter for iPhone")), ("is_retweet", one_of("False"))], ["text"], ["hashtags"], label_separator="list"),
    Published("scicite", [("source", one_of("explicit", "acronym")), ("citeEnd", whole(10, 200)), ("sectionName", one_of("Introduction", "Methods", "Results", "Discussion")), ("citeStart", whole(0, 100)), ("string", prose(1, 2)), ("label", one_of("background", "method", "result")), ("label_confidence", one_of(1.0, 0.75, 0.6)), ("citingPaperId", code), ("citedPaperId", code), ("isKeyCitation", one_of(True, False)), ("id", code)], ["string"], ["label"], "jsonl"),
    Published("fiqa", [("sentence", prose(1, 2)), ("target", one_of("AstraZeneca", "Tesco", "Barclays", "Apple", "Shell")), ("sentiment_score", decimal(-1, 1, 3)), ("aspects", lambda r, g: str([g.choice(["Corporate/Sales", "Stock/Price Action", "Corporate/Risks"])])), ("format", one_of("headline", "post"))], ["sentence"], []),
    Published("goodreads_genres", [("", number), ("Book", title), ("Author", name), ("Description", prose(4, 9)), ("Genres", lambda r, g: str(g.sample(["Classics", "Fiction", "Fantasy", "History", "Young Adult"], g.randint(1, 4)))), ("Avg_Rating", decimal(3, 5, 2)), ("Num_Ratings", lambda r, g: f"{g.randint(1, 999)},{g.randint(100, 999)}"), ("URL", web)], ["Description"], ["Genres"], label_separator="list", rows=200),
    Published("arxiv_keras", [("titles", title), ("summaries", prose(4, 8)), ("terms", lambda r, g: str(g.sample(["cs.CV", "cs.LG", "stat.ML", "cs.AI"], g.randint(1, 3))))], ["summaries"], ["terms"], label_separator="list", rows=200),
    Published("goemotions_csv", [("text", prose(1, 2)), ("labels", lambda r, g: str(sorted(g.sample(range(28), g.choice((1, 1, 1, 2)))))), ("id", code)], ["text"], ["labels"], label_separator="list", rows=300),
    Published("alexa", [("rating", whole(1, 5)), ("date", by_row(lambda r: f"{r % 9 + 22}-Jul-18")), ("variation", one_of("Charcoal Fabric", "Black Dot", "White Spot")), ("verified_reviews", prose(1, 4)), ("feedback", flag(0.9))], ["verified_reviews"], ["rating", "feedback"], "tsv"),
    Published("rt_critics", [("rotten_tomatoes_link", by_row(lambda r: f"m/0{r // 9:03}")), ("critic_name", lambda r, g: f"{g.choice(NAMES).title()} {g.choice(NAMES).title()}"), ("top_critic", one_of("False", "False", "True")), ("publisher_name", one_of("Film Threat", "BBC", "Variety", "Time Out")), ("review_type", one_of("Fresh", "Rotten")), ("review_score", rarely(one_of("3/5", "B+", "2.5/4", "8/10"), 0.7)), ("review_date", day), ("review_content", prose(1, 1))], ["review_content"], ["review_type"], rows=300),
    Published("trump_tweets", [("id", number), ("text", prose(1, 2)), ("isRetweet", one_of("t", "f")), ("isDeleted", one_of("f", "f", "f", "t")), ("device", one_of("Twitter for iPhone", "Twitter for Android", "TweetDeck")), ("favorites", whole(0, 90000)), ("retweets", whole(0, 9000)), ("date", by_row(lambda r: f"2020-03-03 01:{r % 60:02}:12")), ("isFlagged", one_of("f", "f", "f", "t"))], ["text"], []),
    Published("reddit_sarcasm", [("label", yes_no), ("comment", prose(1, 2)), ("author", name), ("subreddit", one_of("politics", "nba", "AskReddit")), ("score", whole(-3, 40)), ("ups", whole(-1, 30)), ("downs", whole(-1, 0)), ("date", one_of("2016-10", "2016-11", "2016-09")), ("created_utc", by_row(lambda r: f"2016-10-16 23:{r % 60:02}:27")), ("parent_comment", prose(1, 2))], ["comment", ("comment", "parent_comment")], ["label"]),
)  # fmt: skip
"""Made when the rules stood, looked at once, and then learned from."""
WRITTEN_LAST = (
    Published("yelp_csv", [("business_id", code), ("date", day), ("review_id", code), ("stars", whole(1, 5)), ("text", prose(2, 6)), ("type", one_of("review")), ("user_id", code), ("cool", whole(0, 4)), ("useful", whole(0, 4)), ("funny", whole(0, 4))], ["text"], ["stars"]),
    Published("trip_advisor", [("Review", prose(4, 9)), ("Rating", whole(1, 5))], ["Review"], ["Rating"]),
    Published("hate_tweets", [("id", number), ("label", flag(0.1)), ("tweet", lambda r, g: "@user " + one_sentence(r, g).lower())], ["tweet"], ["label"]),
    Published("movie_review_phrases", numbered(prose(1, 1), one_of("pos", "neg")), ["column_1"], ["column_2"], "tsv", header=False, sorted_by="column_2"),
    Published("arxiv", [("id", by_row(lambda r: f"0704.{r:04}")), ("submitter", name), ("title", title), ("abstract", prose(4, 8)), ("categories", lambda r, g: " ".join(g.sample(("hep-ph", "math.CO", "cs.CG", "physics.gen-ph"), g.randint(1, 2)))), ("update_date", day)], ["abstract"], ["categories"], "jsonl"),
    Published("reuters", [("topic", one_of("earn", "acq", "crude", "trade")), ("title", title), ("body", prose(3, 8)), ("split", one_of("train", "test"))], ["body", ("title", "body")], ["topic"]),
    Published("mtop", numbered(one_of("IN:GET_MESSAGE", "IN:CREATE_ALARM", "IN:GET_WEATHER"), question), ["column_2"], ["column_1"], "tsv", header=False),
    Published("massive", [("id", number), ("locale", one_of("en-US")), ("partition", one_of("train", "dev", "test")), ("scenario", one_of("alarm", "audio", "iot")), ("intent", one_of("alarm_set", "audio_volume_mute", "iot_hue_lightoff")), ("utt", prose(1, 1)), ("annot_utt", lambda r, g: one_sentence(r, g).replace("the ", "[thing : the] ")), ("worker_id", whole(1, 50))], ["utt"], ["intent"], "jsonl"),
    Published("snips", [("intent", one_of("PlayMusic", "GetWeather", "BookRestaurant")), ("query", question)], ["query"], ["intent"]),
    Published("tweet_eval_emoji", [("text", prose(1, 1)), ("label", whole(0, 19))], ["text"], ["label"], "jsonl", rows=300),
    Published("multilingual_sentiment", [("text", prose(1, 3)), ("sentiment", one_of("positive", "negative", "neutral")), ("lang", one_of("en", "de", "fr"))], ["text"], ["sentiment"]),
    Published("crowdflower_emotions", [("tweet_id", by_row(lambda r: 1956967341 + r)), ("sentiment", one_of("empty", "sadness", "enthusiasm", "neutral")), ("author", name), ("content", prose(1, 1))], ["content"], ["sentiment"]),
    Published("constraint_claims", [("claim_id", number), ("claim", one_sentence), ("explanation", prose(2, 4)), ("main_text", prose(6, 12)), ("sources", web), ("label", one_of("true", "false", "mixture", "unproven")), ("subjects", lambda r, g: ", ".join(g.sample(("Health", "Science", "Politics"), 2)))], ["claim", "main_text"], ["label"], "tsv"),
    Published("msr_paraphrase_kaggle", [("id", number), ("text_a", prose(1, 2)), ("text_b", prose(1, 2)), ("same", yes_no)], [("text_a", "text_b")], ["same"]),
    Published("question_pairs_left_right", [("left_question", question), ("right_question", question), ("duplicate", yes_no)], [("left_question", "right_question")], ["duplicate"]),
    Published("legal", [("case_id", by_row(lambda r: f"Case{r}")), ("case_outcome", one_of("cited", "applied", "followed")), ("case_title", title), ("case_text", prose(4, 9))], ["case_text"], ["case_outcome"]),
    Published("drug_reviews", [("uniqueID", whole(1, 232291)), ("drugName", one_of("Valsartan", "Guanfacine", "Lybrel")), ("condition", one_of("ADHD", "Birth Control", "Pain")), ("review", lambda r, g: f'"{prose(2, 5)(r, g)}"'), ("rating", whole(1, 10)), ("date", by_row(lambda r: f"{r % 28 + 1}-May-12")), ("usefulCount", whole(0, 90))], ["review"], ["rating"], "tsv", rows=200),
    Published("jigsaw_multilingual", [("id", code), ("comment_text", prose(1, 4)), ("toxic", flag(0.1)), ("severe_toxic", flag(0.05)), ("obscene", flag(0.1)), ("lang", one_of("es", "tr"))], ["comment_text"], [("toxic", "severe_toxic", "obscene")]),
    Published("helpdesk", [("Ticket ID", number), ("Customer Name", name), ("Customer Email", lambda r, g: f"{name(r, g)}@example.org"), ("Customer Age", whole(18, 70)), ("Product Purchased", one_of("GoPro Hero", "LG TV")), ("Ticket Type", one_of("Refund request", "Technical issue")), ("Ticket Subject", one_of("Product setup", "Network problem", "Data loss")), ("Ticket Description", prose(2, 4)), ("Ticket Status", one_of("Open", "Closed")), ("Ticket Priority", one_of("Low", "High"))], ["Ticket Description"], ["Ticket Type", "Ticket Priority"]),
    Published("semeval_headless", numbered(by_row(lambda r: 264183816548130816 + r), one_of("positive", "negative", "neutral"), prose(1, 2)), ["column_3"], ["column_2"], "tsv", header=False),
    Published("agreement", [("Sentence", prose(1, 2)), ("Sentiment", one_of("positive", "neutral", "negative"))], ["Sentence"], ["Sentiment"]),
    Published("youtube_spam", [("COMMENT_ID", code), ("AUTHOR", name), ("DATE", by_row(lambda r: f"2013-11-07T06:20:{r % 60:02}")), ("CONTENT", prose(1, 2)), ("CLASS", yes_no)], ["CONTENT"], ["CLASS"]),
    Published("enron", [("Message ID", number), ("Subject", title), ("Message", prose(3, 9)), ("Spam/Ham", one_of("spam", "ham")), ("Date", day)], ["Message", ("Subject", "Message")], ["Spam/Ham"]),
    Published("fakeddit", [("clean_title", lambda r, g: one_sentence(r, g).lower()), ("domain", rarely(one_of("imgur.com", "i.redd.it"), 0.7)), ("subreddit", one_of("mildlyinteresting", "pareidolia")), ("num_comments", whole(0, 20)), ("score", whole(0, 900)), ("2_way_label", yes_no), ("3_way_label", whole(0, 2)), ("6_way_label", whole(0, 5))], ["clean_title"], ["2_way_label", "3_way_label", "6_way_label"], "tsv", rows=200),
    Published("isear", numbered(one_of("joy", "fear", "anger"), prose(1, 3), empty), ["column_2"], ["column_1"], header=False),
    Published("stance", [("ID", number), ("Target", one_of("Atheism", "Climate Change", "Abortion")), ("Tweet", prose(1, 2)), ("Stance", one_of("AGAINST", "FAVOR", "NONE"))], ["Tweet"], ["Stance"], "tsv"),
    Published("swahili_news", [("id", code), ("content", prose(5, 12)), ("category", one_of("Kitaifa", "Biashara", "michezo"))], ["content"], ["category"]),
    Published("quora_jsonl", [("qid", code), ("question_text", question), ("target", flag(0.1))], ["question_text"], ["target"], "jsonl"),
    Published("wiki_attack", [("rev_id", by_row(lambda r: 37675 + r * 3)), ("comment", prose(1, 5)), ("year", one_of(2002, 2003)), ("logged_in", one_of("True", "False")), ("ns", one_of("article", "user")), ("sample", one_of("random", "blocked")), ("split", one_of("train", "dev", "test")), ("attack", flag(0.1))], ["comment"], ["attack"], "tsv"),
    Published("product_titles", numbered(prose(1, 1), one_of("Automotive", "Books", "Beauty"), decimal(1, 90, 2)), ["column_1"], ["column_2"], "tsv", header=False),
    Published("instruments", [("reviewerID", code), ("asin", one_of("1384719342", "B00004Y2UT", "B00005ML71")), ("reviewerName", name), ("helpful", lambda r, g: str([g.choice((0, 0, 1, 2)), g.choice((0, 0, 2, 3))])), ("reviewText", prose(2, 6)), ("overall", one_of("1.0", "2.0", "3.0", "4.0", "5.0")), ("summary", summary), ("unixReviewTime", whole(1300000000, 1400000000)), ("reviewTime", by_row(lambda r: f"{r % 12 + 1:02} {r % 28 + 1}, 2014"))], ["reviewText"], ["overall"]),
    Published("watson", [("id", code), ("premise", prose(1, 2)), ("hypothesis", one_sentence), ("lang_abv", one_of("en", "fr", "zh")), ("language", one_of("English", "French", "Chinese")), ("label", whole(0, 2))], [("premise", "hypothesis")], ["label"]),
    Published("spotify_reviews", [("Time_submitted", by_row(lambda r: f"2022-07-09 15:{r % 60:02}:00")), ("Review", prose(1, 3)), ("Rating", whole(1, 5)), ("Total_thumbsup", whole(0, 5)), ("Reply", rarely(prose(1, 1), 0.02))], ["Review"], ["Rating"]),
    Published("mcdonalds", [("reviewer_id", number), ("store_name", one_of("McDonald's")), ("category", one_of("Fast food restaurant")), ("store_address", one_of("13749 US-183 Hwy, Austin, TX", "1698 US-209, Brodheadsville, PA")), ("latitude", one_of("30.460718", "40.123")), ("longitude", one_of("-97.792874", "-75.3")), ("rating_count", one_of("1,240", "2,810")), ("review_time", one_of("3 months ago", "5 days ago", "a year ago")), ("review", prose(1, 3)), ("rating", one_of("1 star", "4 stars", "5 stars", "2 stars"))], ["review"], ["rating"]),
    Published("apple_twitter", [*CROWD, ("sentiment", one_of("1", "3", "5", "not_relevant")), ("sentiment:confidence", one_of("1", "0.6264", "0.8129")), ("date", by_row(lambda r: f"Mon Dec 01 19:{r % 60:02}:00 +0000 2014")), ("id", number), ("query", one_of("#AAPL OR @Apple")), ("sentiment_gold", rarely(one_of("3", "5"), 0.1)), ("text", prose(1, 2))], ["text"], ["sentiment"]),
    Published("disasters_crowd", [*CROWD, ("choose_one", one_of("Relevant", "Not Relevant")), ("choose_one:confidence", one_of("1", "0.9", "0.8")), ("choose_one_gold", rarely(one_of("Relevant"), 0.01)), ("keyword", one_of("ablaze", "flood", "wreck")), ("location", rarely(place, 0.6)), ("text", prose(1, 2)), ("tweetid", by_row(lambda r: r + 1000)), ("userid", empty)], ["text"], ["choose_one"]),
    Published("recipes", [("name", title), ("id", number), ("minutes", whole(5, 90)), ("contributor_id", whole(1000, 1400)), ("submitted", day), ("tags", list_of(["60-minutes-or-less", "easy", "dinner", "vegetarian", "dietary"], 1, 4)), ("nutrition", lambda r, g: str([round(g.uniform(0, 90), 1) for _ in range(4)])), ("n_steps", whole(3, 15)), ("steps", lambda r, g: str([one_sentence(r, g) for _ in range(4)])), ("description", prose(1, 3)), ("ingredients", list_of(["salt", "butter", "sugar", "eggs", "onion", "flour", "milk"], 3, 6)), ("n_ingredients", whole(3, 9))], ["description"], ["tags"], label_separator="list", rows=200),
    Published("wiki_plots", [("Release Year", whole(1920, 2017)), ("Title", title), ("Origin/Ethnicity", one_of("American", "British", "Tamil")), ("Director", name), ("Cast", name), ("Genre", one_of("drama", "comedy", "unknown", "western")), ("Wiki Page", web), ("Plot", prose(6, 12))], ["Plot"], ["Genre"]),
    Published("semeval_ec", [("ID", by_row(lambda r: f"2017-En-{r}")), ("Tweet", prose(1, 2)), *((c, flag(0.2)) for c in TWEET_EMOTIONS)], ["Tweet"], [TWEET_EMOTIONS], "tsv"),
    Published("ted", [("comments", whole(10, 4000)), ("description", prose(2, 3)), ("duration", whole(300, 1500)), ("event", one_of("TED2006", "TED2007", "TEDGlobal 2010")), ("film_date", whole(1140825600, 1340825600)), ("languages", whole(10, 60)), ("main_speaker", name), ("name", title), ("num_speaker", one_of(1, 1, 1, 2)), ("published_date", whole(1151367060, 1351367060)), ("ratings", lambda r, g: str([{"id": 7, "name": "Funny", "count": g.randint(1, 99)}, {"id": 1, "name": "Beautiful", "count": g.randint(1, 99)}])), ("speaker_occupation", one_of("Author", "Designer", "Biologist", "Activist")), ("tags", list_of(["children", "creativity", "culture", "science", "technology"], 1, 4)), ("title", title), ("url", web), ("views", whole(10000, 900000))], ["description"], ["tags"], label_separator="list", rows=200),
    Published("letterboxd", [("movie", title), ("year", whole(1990, 2022)), ("username", name), ("rating", one_of("0.5", "1.0", "1.5", "2.0", "3.0", "3.5", "4.0", "4.5", "5.0")), ("review_text", prose(1, 4)), ("liked", one_of("True", "False"))], ["review_text"], ["rating"]),
)  # fmt: skip
"""Made when the rules were done."""
