"""Words of the generated catalogue: kinds of products, what they can be, what can be chosen.

Data only, invented for this project. An attribute comes with a clause that says the same in other words: an instruction
may use either, a product's pages use the name.
"""

from __future__ import annotations

from dataclasses import dataclass

# Attribute: the same, as a clause after "that".
CLAUSES = {
    "machine washable": "survives the laundry drum",
    "long sleeves": "covers the arms down to the wrist",
    "v neckline": "is cut in a point below the throat",
    "stretch fabric": "gives way when i bend",
    "elastic waistband": "holds at the hips without a belt",
    "deep pockets": "has room for keys and hands",
    "wrinkle resistant": "needs no ironing",
    "breathable mesh": "lets air through",
    "moisture wicking": "keeps sweat off the skin",
    "slim cut": "sits close to the body",
    "organic cotton": "is grown without pesticides",
    "tagless collar": "does not itch at the nape",
    "rubber outsole": "grips wet pavement",
    "memory cushioning": "moulds to my feet",
    "arch support": "props up the middle of the foot",
    "wide toe box": "leaves space at the front",
    "reflective strips": "shines in headlights",
    "water repellent": "sheds rain",
    "fleece lining": "is fuzzy and warm inside",
    "detachable hood": "can lose its head cover",
    "windproof shell": "stops a gale",
    "noise cancelling": "silences the street around me",
    "wireless pairing": "connects with no cord",
    "quick charging": "fills up within minutes",
    "foldable frame": "collapses to fit a bag",
    "built in microphone": "lets me take calls",
    "deep bass": "sounds strong in the low notes",
    "all day battery": "runs from morning to night",
    "braided cable": "has a cord wrapped in thread",
    "shock absorbing": "takes a fall well",
    "raised edges": "keeps glass off the table",
    "kickstand": "stands up by itself",
    "scratch proof": "stays free of marks",
    "thin profile": "is hardly thicker than a coin",
    "surge protection": "guards against power spikes",
    "dual ports": "feeds two devices at once",
    "travel adapter": "fits sockets abroad",
    "overheat cutoff": "shuts off when hot",
    "wall mountable": "hangs from a bracket",
    "voice remote": "obeys spoken commands",
    "high refresh": "shows fast motion smoothly",
    "matte screen": "does not mirror windows",
    "energy saving": "draws little power",
    "sulfate free": "leaves out harsh detergents",
    "cruelty free": "was never tried on animals",
    "argan oil": "is enriched from a moroccan nut",
    "color safe": "keeps dyed hair from fading",
    "anti dandruff": "fights a flaky scalp",
    "volume boosting": "makes thin hair fuller",
    "vegan formula": "holds nothing of animal origin",
    "hyaluronic acid": "binds water in the skin",
    "fragrance free": "smells of nothing",
    "vitamin c": "brightens like citrus does",
    "wrinkle smoothing": "evens out fine lines",
    "oil balancing": "calms a shiny face",
    "spf protection": "shields against sunburn",
    "glass dropper": "is dosed drop by drop",
    "synthetic bristles": "is made of man made hairs",
    "travel pouch": "brings its own bag",
    "angled tips": "ends in a slant",
    "bamboo handles": "is gripped by fast growing wood",
    "dense heads": "packs its hairs tightly",
    "easy rinse": "is cleaned in seconds",
    "fluoride free": "does without the usual mineral",
    "enamel repair": "rebuilds worn teeth",
    "whitening action": "removes coffee stains",
    "sensitive relief": "soothes aching gums",
    "foaming gel": "bubbles up quickly",
    "charcoal cleansing": "is black with carbon",
    "gluten free": "is safe without wheat",
    "high protein": "builds muscle",
    "nut free": "suits a peanut allergy",
    "low sugar": "is barely sweet",
    "plant based": "comes from vegetables alone",
    "whole grain": "uses the entire oat",
    "individually wrapped": "is packed one by one",
    "kosher certified": "follows jewish dietary law",
    "fair trade": "pays its farmers properly",
    "dark roast": "tastes strong and smoky",
    "single origin": "comes from one region only",
    "low acid": "is gentle on the stomach",
    "decaffeinated": "lets me sleep afterwards",
    "coarse grind": "works in a french press",
    "resealable pouch": "can be closed again",
    "freeze dried": "is crisp from the cold",
    "unsweetened": "has nothing sugary added",
    "no preservatives": "is kept without chemicals",
    "unsulphured": "skips the bleaching gas",
    "extra hot": "burns the tongue",
    "vinegar base": "is sour at heart",
    "small batch": "is cooked a few jars at a time",
    "roasted garlic": "carries a note of baked cloves",
    "keto friendly": "fits a diet without bread",
    "squeeze bottle": "pours with a press of the hand",
    "low sodium": "goes easy on salt",
    "stain resistant": "forgives spilled wine",
    "non slip backing": "stays put on bare floors",
    "low pile": "lies flat under doors",
    "hand woven": "was made on a loom by people",
    "pet friendly": "copes with claws",
    "reversible weave": "shows a second pattern when flipped",
    "outdoor safe": "can lie on the terrace",
    "natural jute": "is made of plant fibre",
    "dimmable light": "can be turned down at night",
    "usb socket": "tops up my phone beside the bed",
    "touch switch": "reacts to a tap",
    "linen shade": "has a cloth hat",
    "weighted base": "does not tip over",
    "led bulb included": "comes ready to shine",
    "brass finish": "gleams like gold",
    "adjustable neck": "bends where i aim it",
    "solid oak": "is built of heavy hardwood",
    "swivel seat": "spins around",
    "tufted back": "is buttoned behind me",
    "padded armrests": "is soft under the elbows",
    "velvet cover": "feels plush",
    "lumbar cushion": "eases my lower spine",
    "tool free assembly": "goes together without a screwdriver",
    "anti tip kit": "is anchored against falling",
    "adjustable shelves": "lets me move the boards up and down",
    "open rear": "can be reached from behind",
    "metal frame": "stands on a skeleton of steel",
    "cable holes": "hides my wires",
    "rounded corners": "has no sharp edges",
}


@dataclass(frozen=True)
class ProductKind:
    """One kind of product."""

    category: str
    query: str
    path: str
    noun: str
    """As an instruction names it, with its article."""
    name: str
    """As titles name it."""
    attributes: tuple[str, ...]
    axes: tuple[str, ...]
    """Keys of `VALUES`; the part before a "/" is the axis's name."""
    prices: tuple[int, int]


def _kind(
    category: str, query: str, path: str, noun: str, name: str, attributes: str, axes: str, low: int, high: int
) -> ProductKind:
    listed = tuple(attribute.strip() for attribute in attributes.split(","))
    return ProductKind(category, query, path, noun, name, listed, tuple(axes.split(", ")), (low, high))


_CLOTHES, _SHOP, _BEAUTY, _FOOD, _HOME = (
    "Clothing & Shoes › ",
    "Electronics › ",
    "Beauty & Care › ",
    "Food & Drink › ",
    "Home & Living › ",
)

KINDS = (
    _kind(
        "fashion", "women's dresses", _CLOTHES + "Women › Dresses", "a summer dress", "Summer Dress",
        "machine washable, long sleeves, v neckline, stretch fabric, elastic waistband, deep pockets, organic cotton",
        "color, size/clothes", 18, 90,
    ),
    _kind(
        "fashion", "men's t-shirts", _CLOTHES + "Men › Shirts › T-Shirts", "a t-shirt", "Crew T-Shirt",
        "machine washable, breathable mesh, moisture wicking, slim cut, organic cotton, tagless collar, "
        "wrinkle resistant, stretch fabric",
        "color, size/clothes, fit type", 9, 45,
    ),
    _kind(
        "fashion", "running shoes", _CLOTHES + "Sports › Running Shoes", "a pair of running shoes", "Running Shoes",
        "rubber outsole, memory cushioning, arch support, wide toe box, reflective strips, breathable mesh, "
        "water repellent",
        "color, shoe size", 35, 160,
    ),
    _kind(
        "fashion", "rain jackets", _CLOTHES + "Outdoor › Jackets", "a rain jacket", "Rain Jacket",
        "water repellent, fleece lining, detachable hood, windproof shell, deep pockets, reflective strips, "
        "machine washable",
        "color, size/clothes", 30, 180,
    ),
    _kind(
        "electronics", "headphones", _SHOP + "Audio › Headphones", "a pair of headphones", "Headphones",
        "noise cancelling, wireless pairing, quick charging, foldable frame, built in microphone, deep bass, "
        "all day battery, braided cable",
        "color, style", 20, 320,
    ),
    _kind(
        "electronics", "phone cases", _SHOP + "Phones › Cases", "a phone case", "Phone Case",
        "shock absorbing, raised edges, kickstand, scratch proof, thin profile, wireless pairing, water repellent",
        "color, phone model", 7, 50,
    ),
    _kind(
        "electronics", "wall chargers", _SHOP + "Power › Wall Chargers", "a wall charger", "Wall Charger",
        "quick charging, surge protection, dual ports, travel adapter, overheat cutoff, braided cable, energy saving",
        "color, bundle", 9, 70,
    ),
    _kind(
        "electronics", "televisions", _SHOP + "Television › Televisions", "a television", "Television",
        "wall mountable, voice remote, high refresh, matte screen, energy saving, thin profile, wireless pairing",
        "screen size, style", 140, 940,
    ),
    _kind(
        "beauty", "shampoo", _BEAUTY + "Hair › Shampoo", "a bottle of shampoo", "Shampoo",
        "sulfate free, cruelty free, argan oil, color safe, anti dandruff, volume boosting, vegan formula",
        "scent, size/liquid", 7, 45,
    ),
    _kind(
        "beauty", "face serum", _BEAUTY + "Skin › Serums", "a face serum", "Face Serum",
        "hyaluronic acid, fragrance free, vitamin c, wrinkle smoothing, oil balancing, spf protection, glass dropper, "
        "vegan formula",
        "size/liquid, skin type", 11, 95,
    ),
    _kind(
        "beauty", "makeup brushes", _BEAUTY + "Makeup › Brushes", "a makeup brush", "Makeup Brush",
        "synthetic bristles, travel pouch, angled tips, bamboo handles, dense heads, easy rinse, cruelty free",
        "color, style", 6, 55,
    ),
    _kind(
        "beauty", "toothpaste", _BEAUTY + "Teeth › Toothpaste", "a tube of toothpaste", "Toothpaste",
        "fluoride free, enamel repair, whitening action, sensitive relief, foaming gel, charcoal cleansing, "
        "vegan formula",
        "flavor, size/liquid", 4, 30,
    ),
    _kind(
        "grocery", "granola bars", _FOOD + "Snacks › Granola Bars", "a box of granola bars", "Granola Bars",
        "gluten free, high protein, nut free, low sugar, plant based, whole grain, individually wrapped, "
        "kosher certified",
        "flavor, size/food", 6, 50,
    ),
    _kind(
        "grocery", "ground coffee", _FOOD + "Coffee › Ground Coffee", "a bag of ground coffee", "Ground Coffee",
        "fair trade, dark roast, single origin, low acid, decaffeinated, coarse grind, resealable pouch",
        "roaster, size/food", 7, 60,
    ),
    _kind(
        "grocery", "dried fruit", _FOOD + "Fruit › Dried Fruit", "a bag of dried fruit", "Dried Fruit",
        "freeze dried, unsweetened, no preservatives, unsulphured, resealable pouch, gluten free, kosher certified",
        "fruit, size/food", 5, 55,
    ),
    _kind(
        "grocery", "hot sauce", _FOOD + "Sauces › Hot Sauce", "a bottle of hot sauce", "Hot Sauce",
        "extra hot, vinegar base, small batch, roasted garlic, keto friendly, squeeze bottle, low sodium, gluten free",
        "pepper, size/liquid", 4, 35,
    ),
    _kind(
        "garden", "area rugs", _HOME + "Floors › Area Rugs", "an area rug", "Area Rug",
        "stain resistant, non slip backing, low pile, hand woven, pet friendly, reversible weave, outdoor safe, "
        "natural jute",
        "color, rug size, shape", 20, 320,
    ),
    _kind(
        "garden", "table lamps", _HOME + "Lighting › Table Lamps", "a table lamp", "Table Lamp",
        "dimmable light, usb socket, touch switch, linen shade, weighted base, led bulb included, brass finish, "
        "adjustable neck",
        "color, size/furniture", 18, 190,
    ),
    _kind(
        "garden", "accent chairs", _HOME + "Furniture › Chairs", "an accent chair", "Accent Chair",
        "solid oak, swivel seat, tufted back, padded armrests, velvet cover, lumbar cushion, stain resistant, "
        "tool free assembly",
        "color, style", 70, 520,
    ),
    _kind(
        "garden", "bookcases", _HOME + "Furniture › Bookcases", "a bookcase", "Bookcase",
        "tool free assembly, anti tip kit, adjustable shelves, open rear, metal frame, cable holes, rounded corners, "
        "solid oak",
        "color, size/furniture", 40, 380,
    ),
)  # fmt: skip

VALUES = {
    "color": "black, white, navy, grey, red, green, blue, pink, beige, brown, teal, purple, burgundy, ivory, olive",
    "size/clothes": "small, medium, large, x-large, xx-large, petite",
    "size/liquid": "travel tube, 4 ounce, 12 ounce, family jug, 1 liter",
    "size/food": "sampler, 8 ounce, 16 ounce, pantry sack, 3 pound",
    "size/furniture": "compact, regular, tall, oversized",
    "fit type": "men, youth, relaxed, athletic",
    "shoe size": "5, 6, 7, 8, 9, 10, 11, 12",
    "style": "modern, country, industrial, nordic, vintage",
    "phone model": "aria 11, bolt 20, cirrus 7, delta fold, echo mini",
    "bundle": "single, duo, trio, charger and cable",
    "screen size": "24 inch desk, 32 inch kitchen, 43 inch bedroom, 55 inch lounge",
    "scent": "lavender, coconut, citrus, unscented, jasmine, vanilla",
    "skin type": "dry, oily, combination, mature",
    "flavor": "chocolate, strawberry, peanut, mango, cinnamon, lemon, original",
    "roaster": "northside, old mill, harbor, juniper",
    "fruit": "mango, apricot, cherry, banana, fig, pineapple",
    "pepper": "habanero, chipotle, jalapeno, ghost, serrano",
    "rug size": "doormat, bedside, dining, grand hall",
    "shape": "square, round, runner, oval",
}

_BITS = "ba ko lu mer tis vo ran zel qui dor nap fi sta wen gro hal pex"
SYLLABLES = tuple(_BITS.split())
FILLERS = (
    "Made for everyday use.",
    "A thoughtful present for relatives and neighbours.",
    "Checked by hand in our own workshop.",
    "Arrives in recycled packaging.",
    "Write to us with any question about an order.",
    "Comes with a two year promise.",
)
TAILS = ("for Home", "for Daily Use", "for Travel", "Gift Set", "New Edition", "2 Years Warranty", "Best Gift")
ACCESSORIES = ("Storage Sleeve", "Cleaning Cloth", "Spare Parts", "Display Hook", "Carry Strap")

REQUESTS = (
    "i am looking for {wish}",
    "i need {wish}",
    "please help me find {wish}",
    "can you get me {wish}",
    "i want to buy {wish}",
)

# The little shop: every name is a word or two, every attribute one.
_NOUNS = "lamp rug mug ring hat belt sofa desk vase pan clock fan cup bed scarf tent"
LITTLE_NOUNS = tuple(_NOUNS.split())
LITTLE_ATTRIBUTES = ("soft", "warm", "bright", "strong", "quiet", "round")
LITTLE_FILLER = "new"
LITTLE_BRANDS = ("nova", "kilo", "luna", "pico", "rex", "solo", "tara", "vela", "zeno", "odo", "mira", "juno")
LITTLE_AXES = {"color": ("red", "blue", "green", "black"), "size": ("small", "big", "huge", "mini")}
